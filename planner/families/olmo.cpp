#include "planner/families/llama.h"
#include "planner/families/mixture.h"

namespace shardplan {
namespace {

constexpr std::int64_t kVocabulary = 50304;

}  // namespace

Decoder describe_olmo(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Olmo", .vocabulary = kVocabulary};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  block.norm = {
      .kind = Norm::Kind::Layer, .class_name = "OlmoLayerNorm", .epsilon = 1e-5, .parameters = 0};
  return llama_decoder(config, "olmo", defaults, block);
}

Decoder describe_olmo2(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Olmo2",
                               .vocabulary = kVocabulary,
                               .epsilon = 1e-5,
                               .query_key_norms = QueryKeyNorms::Yes};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  block.normalises_whole_row = true;
  // Norms stand after attention and MLP, before the addition.
  block.parts.resize(2);
  block.parts.push_back({"post_attention_layernorm", PartRole::AttentionPostNorm});
  block.parts.push_back({"post_feedforward_layernorm", PartRole::MlpPostNorm});
  return llama_decoder(config, "olmo2", defaults, block);
}

Decoder describe_olmoe(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Olmoe",
                               .channels = 2048,
                               .intermediate = 2048,
                               .layers = 16,
                               .heads = 16,
                               .vocabulary = kVocabulary,
                               .epsilon = 1e-5,
                               .query_key_norms = QueryKeyNorms::Yes};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  block.normalises_whole_row = true;
  block.mixture = {.experts = read_size(config, {"num_experts", 64, "num_local_experts"}),
                   .top_k = read_size(config, {"num_experts_per_tok", 8}),
                   .intermediate = block.intermediate};
  use_experts(block, "mlp",
              {.router = {"gate", PartRole::Router, "OlmoeTopKRouter"},
               .class_name = "OlmoeSparseMoeBlock",
               .experts_class = "OlmoeExperts"});
  return llama_decoder(config, "olmoe", defaults, block);
}

}  // namespace shardplan
