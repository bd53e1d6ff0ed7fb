#include "planner/families/llama.h"

namespace shardplan {

Decoder describe_granite(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Granite"};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  block.mlp_bias = read_bias(config, "mlp_bias", false);
  block.scale = read_real(config, "attention_multiplier", 1, kNoLimit);
  block.residual_scale = read_real(config, "residual_multiplier", 1, kNoLimit);
  Decoder decoder = llama_decoder(config, "granite", defaults, block);
  decoder.embedding_scale = read_real(config, "embedding_multiplier", 1, kNoLimit);
  double divisor = 1;
  config.fields.read("logits_scaling", divisor, kPositive);
  decoder.logits_scale = 1 / divisor;
  return decoder;
}

}  // namespace shardplan
