#include "planner/families/llama.h"

namespace shardplan {

Decoder describe_stablelm(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "StableLm",
                               .channels = 2560,
                               .intermediate = 6912,
                               .kv_heads = 32,
                               .vocabulary = 50304};
  Block block = read_llama_block(config, defaults);
  if (read_flag(config, "qk_layernorm", false))
    fail(*config.fields.find("qk_layernorm"), "qk_layernorm is not supported yet");
  block.norm = layer_norm(read_real(config, "layer_norm_eps", 1e-5, 1));
  block.qkv_bias = block.key_bias = read_bias(config, "use_qkv_bias", false);
  read_rope(config, block, {.rotated = 0.25});
  block.parallel = read_flag(config, "use_parallel_residual", false);
  if (block.parallel) block.parts.pop_back();  // one norm for both
  block.parts.push_back({"dropout", PartRole::Module, "Dropout"});
  Decoder decoder = llama_decoder(config, "stablelm", defaults, block);
  decoder.dropouts = {"hidden_dropout", "attention_dropout"};
  return decoder;
}

}  // namespace shardplan
