#include "planner/families/llama.h"

#include <fmt/format.h>

namespace shardplan {

std::vector<Part> llama_block_parts(const std::string& prefix, QueryKeyNorms norms) {
  std::vector<Part> attention{{"q_proj", PartRole::Query},
                              {"k_proj", PartRole::Key},
                              {"v_proj", PartRole::Value},
                              {"o_proj", PartRole::Output}};
  if (norms == QueryKeyNorms::Yes) {
    attention.push_back({"q_norm", PartRole::QueryNorm});
    attention.push_back({"k_norm", PartRole::KeyNorm});
  }
  return {{"self_attn", PartRole::Attention, prefix + "Attention", attention},
          {"mlp", PartRole::Mlp, prefix + "MLP", gated_mlp_parts()},
          {"input_layernorm", PartRole::AttentionNorm},
          {"post_attention_layernorm", PartRole::MlpNorm}};
}

std::vector<Part> gated_mlp_parts() {
  return {{"gate_proj", PartRole::Gate},
          {"up_proj", PartRole::Up},
          {"down_proj", PartRole::Down},
          {"act_fn", PartRole::Activation}};
}

std::vector<Part> llama_model_parts(const std::string& prefix) {
  return {{"model",
           PartRole::Module,
           prefix + "Model",
           {{"embed_tokens", PartRole::Embedding},
            {"layers", PartRole::Blocks},
            {"norm", PartRole::FinalNorm},
            {"rotary_emb", PartRole::Module, prefix + "RotaryEmbedding"}}},
          {"lm_head", PartRole::Head}};
}

Block read_llama_block(ModelConfig& config, const LlamaDefaults& defaults) {
  const std::string prefix(defaults.prefix);
  Block block;
  block.class_name = prefix + "DecoderLayer";
  block.parts = llama_block_parts(prefix, defaults.query_key_norms);
  block.channels = read_size(config, {"hidden_size", defaults.channels, {}, kMostChannels});
  block.intermediate = read_size(config, {"intermediate_size", defaults.intermediate});
  read_heads(config, block,
             {.heads_otherwise = defaults.heads,
              .kv_otherwise = defaults.kv_heads,
              .head_dim_otherwise = defaults.head_dim});
  block.norm = {.class_name = prefix + "RMSNorm",
                .epsilon = read_real(config, "rms_norm_eps", defaults.epsilon, 1)};
  block.query_key_norm = block.norm;
  block.activation = read_activation(config, "hidden_act", "silu");
  read_rope(config, block, {.theta = defaults.theta});
  return block;
}

void read_attention_bias(ModelConfig& config, Block& block) {
  block.qkv_bias = block.key_bias = block.output_bias = read_bias(config, "attention_bias", false);
}

void slide_windows(std::vector<Block>& blocks, const std::vector<bool>& slides,
                   std::int64_t window) {
  for (std::size_t layer = 0; layer < blocks.size(); ++layer)
    if (slides[layer]) blocks[layer].window = window;
}

Decoder llama_decoder(ModelConfig& config, std::string_view family, const LlamaDefaults& defaults,
                      const Block& block) {
  const std::string prefix(defaults.prefix);
  Decoder decoder = repeat_block(config, block, {"num_hidden_layers", defaults.layers});
  decoder.family = family;
  decoder.model_class = prefix + "ForCausalLM";
  decoder.parts = llama_model_parts(prefix);
  read_vocabulary(config, decoder, defaults.vocabulary, defaults.tied);
  decoder.buffers_bytes = rotary_buffers_bytes(block);
  decoder.dropouts = {"attention_dropout"};
  return decoder;
}

Decoder describe_llama(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Llama"};
  Block block = read_llama_block(config, defaults);
  read_attention_bias(config, block);
  block.mlp_bias = read_bias(config, "mlp_bias", false);
  return llama_decoder(config, "llama", defaults, block);
}

Decoder describe_mistral(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Mistral", .intermediate = 14336, .kv_heads = 8};
  Block block = read_llama_block(config, defaults);
  // A null means none, a missing key the class's window.
  block.window = config.fields.find_any("sliding_window") == nullptr ? 4096 : 0;
  config.fields.read("sliding_window", block.window, 1, kMostPositions);
  return llama_decoder(config, "mistral", defaults, block);
}

}  // namespace shardplan
