#include "planner/families/llama.h"
#include "planner/families/mixture.h"

namespace shardplan {

Decoder describe_mixtral(ModelConfig& config) {
  const LlamaDefaults defaults{
      .prefix = "Mixtral", .intermediate = 14336, .kv_heads = 8, .epsilon = 1e-5, .theta = 1e6};
  Block block = read_llama_block(config, defaults);
  config.fields.read("sliding_window", block.window, 1, kMostPositions);
  block.mixture = {.experts = read_size(config, {"num_local_experts", 8, "num_experts"}),
                   .top_k = read_size(config, {"num_experts_per_tok", 2}),
                   .intermediate = block.intermediate};
  use_experts(block, "mlp",
              {.router = {"gate", PartRole::Router, "MixtralTopKRouter"},
               .class_name = "MixtralSparseMoeBlock",
               .experts_class = "MixtralExperts"});
  return llama_decoder(config, "mixtral", defaults, block);
}

}  // namespace shardplan
