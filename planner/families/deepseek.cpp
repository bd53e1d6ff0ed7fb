#include <cmath>

#include "planner/families/llama.h"
#include "planner/families/mixture.h"

namespace shardplan {
namespace {

/// Class defaults in which the two generations differ.
struct Generation {
  std::string_view family;
  std::string prefix;
  std::string mixture_class;
  std::int64_t channels;
  std::int64_t intermediate;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t experts;
  std::int64_t shared_experts;
  std::int64_t expert_intermediate;
  std::int64_t dense_layers;  // at the beginning
  std::int64_t top_k;
  bool router_has_correction;  // a bias per expert that does not train
};

std::vector<Part> attention_parts(bool compresses_queries) {
  std::vector<Part> parts{{"q_proj", PartRole::Query}};
  if (compresses_queries)
    parts = {{"q_a_proj", PartRole::QueryDown},
             {"q_a_layernorm", PartRole::QueryDownNorm},
             {"q_b_proj", PartRole::Query}};
  parts.push_back({"kv_a_proj_with_mqa", PartRole::KeyValueDown});
  parts.push_back({"kv_a_layernorm", PartRole::KeyValueDownNorm});
  parts.push_back({"kv_b_proj", PartRole::KeyValueUp});
  parts.push_back({"o_proj", PartRole::Output});
  return parts;
}

Block read_block(ModelConfig& config, const Generation& generation) {
  Block block;
  block.class_name = generation.prefix + "DecoderLayer";
  block.channels = read_size(config, {"hidden_size", generation.channels, {}, kMostChannels});
  block.intermediate = read_size(config, {"intermediate_size", generation.intermediate});
  block.heads = read_size(config, {"num_attention_heads", generation.heads, {}, kMostChannels});
  block.kv_heads = block.heads;
  Latent& latent = block.latent;
  latent.key_value_rank = read_size(config, {"kv_lora_rank", 512});
  // A null means that queries are not compressed.
  const bool silent = config.fields.find_any("q_lora_rank") == nullptr;
  latent.query_rank = read_derived_size(config, {"q_lora_rank", silent ? 1536 : 0});
  latent.plain_dim = read_size(config, {"qk_nope_head_dim", 128});
  latent.rotated_dim = read_size(config, {"qk_rope_head_dim", 64});
  block.head_dim = latent.plain_dim + latent.rotated_dim;
  block.value_dim = read_size(config, {"v_head_dim", 128});
  block.scale = 1 / std::sqrt(static_cast<double>(block.head_dim));
  block.norm = {.class_name = generation.prefix + "RMSNorm",
                .epsilon = read_real(config, "rms_norm_eps", 1e-6, 1)};
  block.activation = read_activation(config, "hidden_act", "silu");
  read_rope(config, block, {});
  block.rope.set(Attribute::RotaryDim, static_cast<double>(latent.rotated_dim));
  block.rope.set(Attribute::RotaryOffset, static_cast<double>(latent.plain_dim));
  block.parts = llama_block_parts(generation.prefix, QueryKeyNorms::No);
  block.parts.front().children = attention_parts(latent.query_rank > 0);
  return block;
}

void read_experts(ModelConfig& config, const Generation& generation, Block& block) {
  const std::int64_t width =
      read_size(config, {"moe_intermediate_size", generation.expert_intermediate});
  const std::int64_t shared = read_size(config, {"n_shared_experts", generation.shared_experts});
  block.mixture = {
      .experts = read_size(config, {"n_routed_experts", generation.experts, "num_local_experts"}),
      .top_k = read_size(config, {"num_experts_per_tok", generation.top_k}),
      .intermediate = width,
      .shared_intermediate = shared * width};
  use_experts(block, "mlp",
              {.router = {"gate", PartRole::Router, generation.prefix + "TopkRouter"},
               .class_name = generation.mixture_class,
               .experts_class = generation.prefix + "Experts",
               .order = MixtureParts::Order::ExpertsFirst,
               .shared = {{"shared_experts", PartRole::SharedExpert, generation.prefix + "MLP",
                           gated_mlp_parts()}}});
}

Decoder describe(ModelConfig& config, const Generation& generation) {
  const Block dense = read_block(config, generation);
  const LlamaDefaults defaults{.prefix = generation.prefix,
                               .layers = generation.layers,
                               .vocabulary = generation.vocabulary};
  Decoder decoder = llama_decoder(config, generation.family, defaults, dense);
  Block sparse = dense;
  read_experts(config, generation, sparse);
  const std::int64_t dense_layers =
      read_derived_size(config, {"first_k_dense_replace", generation.dense_layers});
  for (auto layer = static_cast<std::size_t>(dense_layers); layer < decoder.blocks.size(); ++layer)
    decoder.blocks[layer] = sparse;
  if (generation.router_has_correction)
    for (const Block& block : decoder.blocks)
      decoder.buffers_bytes += block.mixture.experts * size_of(Dtype::Float32);
  return decoder;
}

}  // namespace

Decoder describe_deepseek_v2(ModelConfig& config) {
  return describe(config, {.family = "deepseek_v2",
                           .prefix = "DeepseekV2",
                           .mixture_class = "DeepseekV2Moe",
                           .channels = 4096,
                           .intermediate = 11008,
                           .layers = 32,
                           .heads = 32,
                           .vocabulary = 102400,
                           .experts = 64,
                           .shared_experts = 2,
                           .expert_intermediate = 1407,
                           .dense_layers = 0,
                           .top_k = 6,
                           .router_has_correction = false});
}

Decoder describe_deepseek_v3(ModelConfig& config) {
  return describe(config, {.family = "deepseek_v3",
                           .prefix = "DeepseekV3",
                           .mixture_class = "DeepseekV3MoE",
                           .channels = 7168,
                           .intermediate = 18432,
                           .layers = 61,
                           .heads = 128,
                           .vocabulary = 129280,
                           .experts = 256,
                           .shared_experts = 1,
                           .expert_intermediate = 2048,
                           .dense_layers = 3,
                           .top_k = 8,
                           .router_has_correction = true});
}

}  // namespace shardplan
