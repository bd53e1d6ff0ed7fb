#include <algorithm>

#include "planner/families/llama.h"
#include "planner/families/mixture.h"

namespace shardplan {
namespace {

/// Numbers of layers that keep a dense MLP.
std::vector<std::int64_t> read_dense_layers(ModelConfig& config) {
  std::vector<std::int64_t> layers;
  const Node* node = config.fields.find("mlp_only_layers");
  if (node == nullptr) return layers;
  if (node->kind != Node::Kind::Sequence) fail(*node, "mlp_only_layers: expected a list");
  for (const Node& item : node->items)
    layers.push_back(integer_of(item, "mlp_only_layers", 0, kMostLayers));
  return layers;
}

/// A layer has experts when decoder_sparse_step divides its number, counted from 1.
void place_experts(ModelConfig& config, std::vector<Block>& blocks, const Block& sparse) {
  const std::int64_t step = read_derived_size(config, {"decoder_sparse_step", 1});
  const std::vector<std::int64_t> dense = read_dense_layers(config);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    if (step > 0 && (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end())
      blocks[i] = sparse;
  }
}

}  // namespace

Decoder describe_qwen2_moe(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Qwen2Moe",
                               .channels = 2048,
                               .intermediate = 5632,
                               .layers = 24,
                               .heads = 16,
                               .kv_heads = 16,
                               .vocabulary = 151936};
  Block block = read_llama_block(config, defaults);
  block.qkv_bias = block.key_bias = read_bias(config, "qkv_bias", true);
  Decoder decoder = llama_decoder(config, "qwen2_moe", defaults, block);
  block.mixture = {
      .experts = read_size(config, {"num_experts", 60}),
      .top_k = read_size(config, {"num_experts_per_tok", 4}),
      .intermediate = read_size(config, {"moe_intermediate_size", 1408}),
      .shared_intermediate = read_size(config, {"shared_expert_intermediate_size", 5632})};
  use_experts(
      block, "mlp",
      {.router = {"gate", PartRole::Router, "Qwen2MoeTopKRouter"},
       .class_name = "Qwen2MoeSparseMoeBlock",
       .experts_class = "Qwen2MoeExperts",
       .shared = {{"shared_expert", PartRole::SharedExpert, "Qwen2MoeMLP", gated_mlp_parts()},
                  {"shared_expert_gate", PartRole::SharedGate}}});
  place_experts(config, decoder.blocks, block);
  return decoder;
}

Decoder describe_qwen3_moe(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Qwen3Moe",
                               .channels = 2048,
                               .intermediate = 6144,
                               .layers = 24,
                               .heads = 32,
                               .kv_heads = 4,
                               .vocabulary = 151936,
                               .query_key_norms = QueryKeyNorms::Yes};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  Decoder decoder = llama_decoder(config, "qwen3_moe", defaults, block);
  block.mixture = {.experts = read_size(config, {"num_experts", 128, "num_local_experts"}),
                   .top_k = read_size(config, {"num_experts_per_tok", 8}),
                   .intermediate = read_size(config, {"moe_intermediate_size", 768})};
  use_experts(block, "mlp",
              {.router = {"gate", PartRole::Router, "Qwen3MoeTopKRouter"},
               .class_name = "Qwen3MoeSparseMoeBlock",
               .experts_class = "Qwen3MoeExperts",
               .order = MixtureParts::Order::ExpertsFirst});
  place_experts(config, decoder.blocks, block);
  return decoder;
}

}  // namespace shardplan
