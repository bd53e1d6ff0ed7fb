#include "planner/families/decoder.h"

namespace shardplan {
namespace {

std::vector<Part> block_parts() {
  return {{"input_layernorm", PartRole::AttentionNorm},
          {"post_attention_layernorm", PartRole::MlpNorm},
          {"post_attention_dropout", PartRole::Module, "Dropout"},
          {"post_mlp_dropout", PartRole::Module, "Dropout"},
          {"attention",
           PartRole::Attention,
           "GPTNeoXAttention",
           {{"query_key_value", PartRole::PackedQkv}, {"dense", PartRole::Output}}},
          {"mlp",
           PartRole::Mlp,
           "GPTNeoXMLP",
           {{"dense_h_to_4h", PartRole::Up},
            {"dense_4h_to_h", PartRole::Down},
            {"act", PartRole::Activation}}}};
}

std::vector<Part> model_parts() {
  return {{"gpt_neox",
           PartRole::Module,
           "GPTNeoXModel",
           {{"embed_in", PartRole::Embedding},
            {"emb_dropout", PartRole::Module, "Dropout"},
            {"layers", PartRole::Blocks},
            {"final_layer_norm", PartRole::FinalNorm},
            {"rotary_emb", PartRole::Module, "GPTNeoXRotaryEmbedding"}}},
          {"lm_head", PartRole::Head}};
}

}  // namespace

Decoder describe_gpt_neox(ModelConfig& config) {
  Block block;
  block.class_name = "GPTNeoXLayer";
  block.parts = block_parts();
  block.channels = read_size(config, {"hidden_size", 6144, {}, kMostChannels});
  block.intermediate = read_size(config, {"intermediate_size", 24576});
  read_heads(config, block, {.heads_otherwise = 64});
  block.packing = Packing::ByGroup;
  block.norm = layer_norm(read_real(config, "layer_norm_eps", 1e-5, 1));
  block.activation = read_activation(config, "hidden_act", "gelu");
  block.qkv_bias = block.output_bias = read_bias(config, "attention_bias", true);
  block.mlp_bias = Bias::Yes;
  block.parallel = read_flag(config, "use_parallel_residual", true);
  read_rope(config, block,
            {.rotated = 0.25, .theta_key = "rotary_emb_base", .rotated_key = "rotary_pct"});
  Decoder decoder = repeat_block(config, block, {"num_hidden_layers", 44});
  decoder.family = "gpt_neox";
  decoder.model_class = "GPTNeoXForCausalLM";
  decoder.parts = model_parts();
  read_vocabulary(config, decoder, 50432, false);
  decoder.buffers_bytes = rotary_buffers_bytes(block);
  decoder.dropouts = {"attention_dropout", "hidden_dropout"};
  return decoder;
}

}  // namespace shardplan
