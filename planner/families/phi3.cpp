#include "planner/families/llama.h"
#include "planner/families/mixture.h"

namespace shardplan {

Decoder describe_phi3(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Phi3",
                               .channels = 3072,
                               .intermediate = 8192,
                               .vocabulary = 32064,
                               .epsilon = 1e-5};
  Block block = read_llama_block(config, defaults);
  config.fields.read("sliding_window", block.window, 1, kMostPositions);
  block.parts = {{"self_attn",
                  PartRole::Attention,
                  "Phi3Attention",
                  {{"o_proj", PartRole::Output}, {"qkv_proj", PartRole::PackedQkv}}},
                 {"mlp",
                  PartRole::Mlp,
                  "Phi3MLP",
                  {{"gate_up_proj", PartRole::PackedGateUp},
                   {"down_proj", PartRole::Down},
                   {"activation_fn", PartRole::Activation}}},
                 {"input_layernorm", PartRole::AttentionNorm},
                 {"post_attention_layernorm", PartRole::MlpNorm},
                 {"resid_attn_dropout", PartRole::Module, "Dropout"},
                 {"resid_mlp_dropout", PartRole::Module, "Dropout"}};
  Decoder decoder = llama_decoder(config, "phi3", defaults, block);
  decoder.dropouts = {"resid_pdrop", "embd_pdrop", "attention_dropout"};
  return decoder;
}

Decoder describe_phimoe(ModelConfig& config) {
  const LlamaDefaults defaults{
      .prefix = "Phimoe", .intermediate = 6400, .kv_heads = 8, .vocabulary = 32064, .theta = 1e6};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  config.fields.read("sliding_window", block.window, 1, kMostPositions);
  block.norm = layer_norm(read_real(config, "rms_norm_eps", 1e-5, 1));
  block.mixture = {.experts = read_size(config, {"num_local_experts", 16, "num_experts"}),
                   .top_k = read_size(config, {"num_experts_per_tok", 2}),
                   .intermediate = block.intermediate};
  use_experts(block, "mlp",
              {.router = {"router", PartRole::Router, "PhimoeTopKRouter"},
               .class_name = "PhimoeSparseMoeBlock",
               .experts_class = "PhimoeExperts"});
  Decoder decoder = llama_decoder(config, "phimoe", defaults, block);
  decoder.head_bias = read_bias(config, "lm_head_bias", false);
  return decoder;
}

}  // namespace shardplan
