#include "planner/families/llama.h"

namespace shardplan {
namespace {

/// Attention and MLP read one norm that has no bias; logits are scaled.
Decoder cohere_decoder(ModelConfig& config, std::string_view family,
                       const LlamaDefaults& defaults) {
  Block block = read_llama_block(config, defaults);
  block.parts.pop_back();
  block.parallel = true;
  block.norm = {.kind = Norm::Kind::Layer,
                .class_name = std::string(defaults.prefix) + "LayerNorm",
                .epsilon = read_real(config, "layer_norm_eps", 1e-5, 1),
                .parameters = 1};
  block.query_key_norm = block.norm;
  block.norms_per_head_weights = true;
  block.rope.set(Attribute::RopeInterleaved, 1);
  read_attention_bias(config, block);
  Decoder decoder = llama_decoder(config, family, defaults, block);
  decoder.logits_scale = read_real(config, "logit_scale", 0.0625, kNoLimit);
  return decoder;
}

constexpr LlamaDefaults kDefaults{.prefix = "Cohere",
                                  .channels = 8192,
                                  .intermediate = 22528,
                                  .layers = 40,
                                  .heads = 64,
                                  .vocabulary = 256000,
                                  .theta = 500000,
                                  .tied = true};

}  // namespace

Decoder describe_cohere(ModelConfig& config) {
  LlamaDefaults defaults = kDefaults;
  if (read_flag(config, "use_qk_norm", false)) defaults.query_key_norms = QueryKeyNorms::Yes;
  return cohere_decoder(config, "cohere", defaults);
}

Decoder describe_cohere2(ModelConfig& config) {
  LlamaDefaults defaults = kDefaults;
  defaults.prefix = "Cohere2";
  defaults.theta = 10000;
  Decoder decoder = cohere_decoder(config, "cohere2", defaults);
  const std::int64_t pattern = read_derived_size(config, {"sliding_window_pattern", 4});
  const std::vector<bool> slides = read_sliding_layers(
      config, static_cast<std::int64_t>(decoder.blocks.size()),
      [&](std::int64_t layer) { return pattern > 0 && (layer + 1) % pattern != 0; });
  std::int64_t window = 4096;
  config.fields.read("sliding_window", window, 1, kMostPositions);
  slide_windows(decoder.blocks, slides, window);
  for (std::size_t layer = 0; layer < slides.size(); ++layer)
    decoder.blocks[layer].rotates = slides[layer];  // layers with full attention do not
  return decoder;
}

}  // namespace shardplan
