#include "planner/families/decoder.h"

namespace shardplan {
namespace {

std::vector<Part> block_parts(bool normalises_query_and_key) {
  std::vector<Part> attention{{"q_proj", PartRole::Query},
                              {"k_proj", PartRole::Key},
                              {"v_proj", PartRole::Value},
                              {"dense", PartRole::Output}};
  if (normalises_query_and_key) {
    attention.push_back({"q_layernorm", PartRole::QueryNorm});
    attention.push_back({"k_layernorm", PartRole::KeyNorm});
  }
  return {
      {"self_attn", PartRole::Attention, "PhiAttention", attention},
      {"mlp",
       PartRole::Mlp,
       "PhiMLP",
       {{"activation_fn", PartRole::Activation}, {"fc1", PartRole::Up}, {"fc2", PartRole::Down}}},
      {"input_layernorm", PartRole::AttentionNorm},
      {"resid_dropout", PartRole::Module, "Dropout"}};
}

std::vector<Part> model_parts() {
  return {{"model",
           PartRole::Module,
           "PhiModel",
           {{"embed_tokens", PartRole::Embedding},
            {"layers", PartRole::Blocks},
            {"rotary_emb", PartRole::Module, "PhiRotaryEmbedding"},
            {"embed_dropout", PartRole::Module, "Dropout"},
            {"final_layernorm", PartRole::FinalNorm}}},
          {"lm_head", PartRole::Head}};
}

}  // namespace

Decoder describe_phi(ModelConfig& config) {
  Block block;
  block.class_name = "PhiDecoderLayer";
  block.channels = read_size(config, {"hidden_size", 2048, {}, kMostChannels});
  block.intermediate = read_size(config, {"intermediate_size", 8192});
  read_heads(config, block, {});
  block.norm = block.query_key_norm = layer_norm(read_real(config, "layer_norm_eps", 1e-5, 1));
  block.activation = read_activation(config, "hidden_act", "gelu_new");
  block.qkv_bias = block.key_bias = block.output_bias = block.mlp_bias = Bias::Yes;
  block.parallel = true;
  read_rope(config, block, {.rotated = 0.5});
  block.parts = block_parts(read_flag(config, "qk_layernorm", false));
  Decoder decoder = repeat_block(config, block, {"num_hidden_layers", 24});
  decoder.family = "phi";
  decoder.model_class = "PhiForCausalLM";
  decoder.parts = model_parts();
  read_vocabulary(config, decoder, 51200, false);
  decoder.head_bias = Bias::Yes;
  decoder.buffers_bytes = rotary_buffers_bytes(block);
  decoder.dropouts = {"resid_pdrop", "embd_pdrop", "attention_dropout"};
  return decoder;
}

}  // namespace shardplan
