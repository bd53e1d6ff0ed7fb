#include "planner/families/decoder.h"

namespace shardplan {
namespace {

// The class comes with the checkpoint (modeling_chatglm.py of THUDM/chatglm2-6b and 3), not with
// transformers.

std::vector<Part> block_parts() {
  return {{"input_layernorm", PartRole::AttentionNorm},
          {"self_attention",
           PartRole::Attention,
           "SelfAttention",
           {{"query_key_value", PartRole::PackedQkv},
            {"core_attention", PartRole::Module, "CoreAttention"},
            {"dense", PartRole::Output}}},
          {"post_attention_layernorm", PartRole::MlpNorm},
          {"mlp",
           PartRole::Mlp,
           "MLP",
           {{"dense_h_to_4h", PartRole::PackedGateUp}, {"dense_4h_to_h", PartRole::Down}}}};
}

std::vector<Part> model_parts(bool has_final_norm) {
  std::vector<Part> encoder{{"layers", PartRole::Blocks}};
  if (has_final_norm) encoder.push_back({"final_layernorm", PartRole::FinalNorm});
  return {
      {"transformer",
       PartRole::Module,
       "ChatGLMModel",
       {{"embedding", PartRole::Module, "Embedding", {{"word_embeddings", PartRole::Embedding}}},
        {"rotary_pos_emb", PartRole::Module, "RotaryEmbedding"},
        {"encoder", PartRole::Module, "GLMTransformer", encoder},
        {"output_layer", PartRole::Head}}}};
}

}  // namespace

Decoder describe_chatglm(ModelConfig& config) {
  Block block;
  block.class_name = "GLMBlock";
  block.parts = block_parts();
  block.channels = read_size(config, {"hidden_size", 4096, {}, kMostChannels});
  block.intermediate = read_size(config, {"ffn_hidden_size", 13696});
  const bool multi_query = read_flag(config, "multi_query_attention", false);
  read_heads(config, block,
             {.kv_otherwise = multi_query ? 1 : 0,
              .head_dim_otherwise = read_derived_size(config, {"kv_channels", 128}),
              .kv_key = multi_query ? "multi_query_group_num" : ""});
  const double epsilon = read_real(config, "layernorm_epsilon", 1e-5, 1);
  block.norm = layer_norm(epsilon);
  if (read_flag(config, "rmsnorm", true))
    block.norm = {.class_name = "RMSNorm", .epsilon = epsilon};
  const Bias bias = read_bias(config, "add_bias_linear", false);
  block.output_bias = block.mlp_bias = bias;
  block.qkv_bias = read_bias(config, "add_qkv_bias", false) == Bias::Yes ? Bias::Yes : bias;
  read_rope(config, block, {.rotated = 0.5});
  block.rope.set(Attribute::RopeInterleaved, 1);
  Decoder decoder = repeat_block(config, block, {"num_layers", 28, "num_hidden_layers"});
  decoder.family = "chatglm";
  decoder.model_class = "ChatGLMForConditionalGeneration";
  decoder.parts = model_parts(read_flag(config, "post_layer_norm", true));
  read_vocabulary(config, decoder, 65024, false);
  decoder.vocabulary =
      read_derived_size(config, {"padded_vocab_size", decoder.vocabulary, {}, kMostVocabulary});
  decoder.dropouts = {"hidden_dropout", "attention_dropout"};
  return decoder;
}

}  // namespace shardplan
