#include "planner/families/llama.h"

namespace shardplan {
namespace {

/// Gate and up are one projection, and half of a head's neighbouring columns rotate.
Block read_glm_block(ModelConfig& config, const LlamaDefaults& defaults) {
  Block block = read_llama_block(config, defaults);
  block.parts[1].children = {{"gate_up_proj", PartRole::PackedGateUp},
                             {"down_proj", PartRole::Down},
                             {"activation_fn", PartRole::Activation}};
  block.qkv_bias = block.key_bias = read_bias(config, "attention_bias", true);
  read_rope(config, block, {.rotated = 0.5});
  block.rope.set(Attribute::RopeInterleaved, 1);
  return block;
}

constexpr LlamaDefaults kDefaults{.prefix = "Glm",
                                  .intermediate = 13696,
                                  .layers = 40,
                                  .kv_heads = 2,
                                  .head_dim = 128,
                                  .vocabulary = 151552,
                                  .epsilon = 1.5625e-07};

}  // namespace

Decoder describe_glm(ModelConfig& config) {
  const Block block = read_glm_block(config, kDefaults);
  return llama_decoder(config, "glm", kDefaults, block);
}

Decoder describe_glm4(ModelConfig& config) {
  LlamaDefaults defaults = kDefaults;
  defaults.prefix = "Glm4";
  Block block = read_glm_block(config, defaults);
  block.parts.push_back({"post_self_attn_layernorm", PartRole::AttentionPostNorm});
  block.parts.push_back({"post_mlp_layernorm", PartRole::MlpPostNorm});
  return llama_decoder(config, "glm4", defaults, block);
}

}  // namespace shardplan
