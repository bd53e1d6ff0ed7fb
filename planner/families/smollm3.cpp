#include "planner/families/llama.h"

namespace shardplan {

Decoder describe_smollm3(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "SmolLM3",
                               .channels = 2048,
                               .layers = 36,
                               .heads = 16,
                               .kv_heads = 4,
                               .vocabulary = 128256,
                               .theta = 2e6,
                               .tied = true};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  block.mlp_bias = read_bias(config, "mlp_bias", false);
  Decoder decoder = llama_decoder(config, "smollm3", defaults, block);
  // Every fourth layer does without rotation.
  const auto interval =
      static_cast<std::size_t>(read_derived_size(config, {"no_rope_layer_interval", 4}));
  for (std::size_t layer = 0; interval > 0 && layer < decoder.blocks.size(); ++layer)
    decoder.blocks[layer].rotates = (layer + 1) % interval != 0;
  return decoder;
}

}  // namespace shardplan
