#include <cmath>

#include "planner/families/llama.h"

namespace shardplan {
namespace {

/// Norms multiply with 1 + weight, embeddings are scaled.
Block read_gemma_block(ModelConfig& config, const LlamaDefaults& defaults,
                       std::string_view activation_key) {
  Block block = read_llama_block(config, defaults);
  block.norm.unit_offset = block.query_key_norm.unit_offset = true;
  read_attention_bias(config, block);
  block.activation = read_activation(config, activation_key, "gelu_pytorch_tanh");
  return block;
}

/// Norms before and after both attention and MLP.
void add_outer_norms(Block& block) {
  block.parts.resize(2);
  block.parts.push_back({"input_layernorm", PartRole::AttentionNorm});
  block.parts.push_back({"post_attention_layernorm", PartRole::AttentionPostNorm});
  block.parts.push_back({"pre_feedforward_layernorm", PartRole::MlpNorm});
  block.parts.push_back({"post_feedforward_layernorm", PartRole::MlpPostNorm});
}

void read_soft_caps(ModelConfig& config, Decoder& decoder, double scores, double logits) {
  // A null means none.
  const auto cap = [&](std::string_view key, double otherwise) {
    double value = config.fields.find_any(key) == nullptr ? otherwise : 0;
    config.fields.read(key, value, 0);
    return value;
  };
  const double of_scores = cap("attn_logit_softcapping", scores);
  for (Block& block : decoder.blocks)
    block.soft_cap = of_scores;
  decoder.logits_soft_cap = cap("final_logit_softcapping", logits);
}

Decoder gemma_decoder(ModelConfig& config, std::string_view family, const LlamaDefaults& defaults,
                      const Block& block) {
  Decoder decoder = llama_decoder(config, family, defaults, block);
  decoder.buffers_bytes += size_of(Dtype::Float32);  // the scale
  decoder.embedding_scale = std::sqrt(static_cast<double>(block.channels));
  decoder.parts.front().children.front().class_name =
      std::string(defaults.prefix) + "TextScaledWordEmbedding";
  return decoder;
}

void read_query_scale(ModelConfig& config, Block& block) {
  double scalar = 256;
  config.fields.read("query_pre_attn_scalar", scalar, kPositive);
  block.scale = 1 / std::sqrt(scalar);
}

std::int64_t read_window(ModelConfig& config) {
  std::int64_t window = 4096;
  config.fields.read("sliding_window", window, 1, kMostPositions);
  return window;
}

}  // namespace

Decoder describe_gemma(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Gemma",
                               .channels = 3072,
                               .intermediate = 24576,
                               .layers = 28,
                               .heads = 16,
                               .kv_heads = 16,
                               .head_dim = 256,
                               .vocabulary = 256000,
                               .tied = true};
  Block block = read_gemma_block(config, defaults, "hidden_act");
  // Early files say "gelu" and mean the approximation, as transformers knows.
  if (block.activation.class_name == "GELUActivation")
    block.activation = {OperatorKind::Gelu, true, "GELUTanh"};
  return gemma_decoder(config, "gemma", defaults, block);
}

Decoder describe_gemma2(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Gemma2",
                               .channels = 2304,
                               .intermediate = 9216,
                               .layers = 26,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_dim = 256,
                               .vocabulary = 256000,
                               .tied = true};
  Block block = read_gemma_block(config, defaults, "hidden_activation");
  add_outer_norms(block);
  read_query_scale(config, block);
  Decoder decoder = gemma_decoder(config, "gemma2", defaults, block);
  const auto every_other = [](std::int64_t layer) { return layer % 2 == 0; };
  slide_windows(
      decoder.blocks,
      read_sliding_layers(config, static_cast<std::int64_t>(decoder.blocks.size()), every_other),
      read_window(config));
  read_soft_caps(config, decoder, 50, 30);
  return decoder;
}

Decoder gemma3_decoder(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Gemma3",
                               .channels = 2304,
                               .intermediate = 9216,
                               .layers = 26,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_dim = 256,
                               .vocabulary = 262208,
                               .theta = 1e6,
                               .tied = true,
                               .query_key_norms = QueryKeyNorms::Yes};
  Block block = read_gemma_block(config, defaults, "hidden_activation");
  add_outer_norms(block);
  read_query_scale(config, block);
  Decoder decoder = gemma_decoder(config, "gemma3_text", defaults, block);
  decoder.parts.front().class_name = "Gemma3TextModel";
  const std::int64_t pattern = read_size(config, {"sliding_window_pattern", 6});
  const std::vector<bool> slides =
      read_sliding_layers(config, static_cast<std::int64_t>(decoder.blocks.size()),
                          [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  slide_windows(decoder.blocks, slides, read_window(config));
  // Layers that slide rotate by another base, unscaled.
  double local_theta = 10000;
  config.fields.read("rope_local_base_freq", local_theta, kPositive);
  for (std::size_t layer = 0; layer < slides.size(); ++layer)
    if (slides[layer])
      decoder.blocks[layer].rope = {{Attribute::HeadDim, static_cast<double>(block.head_dim)},
                                    {Attribute::RopeTheta, local_theta}};
  read_soft_caps(config, decoder, 0, 0);
  decoder.buffers_bytes += rotary_buffers_bytes(block);  // tables for both kinds of layers
  return decoder;
}

Decoder describe_gemma3_text(ModelConfig& config) { return gemma3_decoder(config); }

}  // namespace shardplan
