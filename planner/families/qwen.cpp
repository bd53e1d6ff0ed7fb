#include "planner/families/llama.h"

namespace shardplan {
namespace {

/// Windows are opt-in: use_sliding_window, and then in the layers from max_window_layers on.
void read_windows(ModelConfig& config, std::vector<Block>& blocks) {
  std::int64_t window = 0;
  config.fields.read("sliding_window", window, 0, kMostPositions);
  const std::int64_t full_layers =
      read_derived_size(config, {"max_window_layers", 28, {}, kMostLayers});
  if (!read_flag(config, "use_sliding_window", false)) return;
  slide_windows(blocks,
                read_sliding_layers(config, static_cast<std::int64_t>(blocks.size()),
                                    [&](std::int64_t layer) { return layer >= full_layers; }),
                window);
}

}  // namespace

Decoder describe_qwen2(ModelConfig& config) {
  const LlamaDefaults defaults{
      .prefix = "Qwen2", .intermediate = 22016, .kv_heads = 32, .vocabulary = 151936};
  Block block = read_llama_block(config, defaults);
  block.qkv_bias = block.key_bias = Bias::Yes;  // whatever attention_bias says
  Decoder decoder = llama_decoder(config, "qwen2", defaults, block);
  read_windows(config, decoder.blocks);
  return decoder;
}

Decoder describe_qwen3(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Qwen3",
                               .intermediate = 22016,
                               .kv_heads = 32,
                               .head_dim = 128,
                               .vocabulary = 151936,
                               .query_key_norms = QueryKeyNorms::Yes};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  Decoder decoder = llama_decoder(config, "qwen3", defaults, block);
  read_windows(config, decoder.blocks);
  return decoder;
}

}  // namespace shardplan
