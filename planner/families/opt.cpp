#include "planner/families/decoder.h"

namespace shardplan {
namespace {

/// The table of positions has two rows that no token uses.
constexpr std::int64_t kPositionOffset = 2;

std::vector<Part> block_parts(bool norms_before) {
  return {{"self_attn",
           PartRole::Attention,
           "OPTAttention",
           {{"k_proj", PartRole::Key},
            {"v_proj", PartRole::Value},
            {"q_proj", PartRole::Query},
            {"out_proj", PartRole::Output}}},
          {"activation_fn", PartRole::Activation},
          {"self_attn_layer_norm",
           norms_before ? PartRole::AttentionNorm : PartRole::AttentionResidualNorm},
          {"fc1", PartRole::Up},
          {"fc2", PartRole::Down},
          {"final_layer_norm", norms_before ? PartRole::MlpNorm : PartRole::MlpResidualNorm}};
}

std::vector<Part> model_parts(bool projects, bool has_final_norm) {
  std::vector<Part> decoder{
      {"embed_tokens", PartRole::Embedding},
      {"embed_positions", PartRole::Positions, "OPTLearnedPositionalEmbedding"}};
  if (projects) {
    decoder.push_back({"project_out", PartRole::ProjectOut});
    decoder.push_back({"project_in", PartRole::ProjectIn});
  }
  if (has_final_norm) decoder.push_back({"final_layer_norm", PartRole::FinalNorm});
  decoder.push_back({"layers", PartRole::Blocks});
  return {{"model",
           PartRole::Module,
           "OPTModel",
           {{"decoder", PartRole::Module, "OPTDecoder", decoder}}},
          {"lm_head", PartRole::Head}};
}

}  // namespace

Decoder describe_opt(ModelConfig& config) {
  const bool norms_before = read_flag(config, "do_layer_norm_before", true);
  Block block;
  block.class_name = "OPTDecoderLayer";
  block.parts = block_parts(norms_before);
  block.channels = read_size(config, {"hidden_size", 768, {}, kMostChannels});
  block.intermediate = read_size(config, {"ffn_dim", 3072});
  read_heads(config, block, {.heads_otherwise = 12, .kv_key = {}});
  block.norm = layer_norm(1e-5);
  if (!read_flag(config, "layer_norm_elementwise_affine", true)) block.norm.parameters = 0;
  block.activation = read_activation(config, "activation_function", "relu");
  block.qkv_bias = block.key_bias = block.output_bias = block.mlp_bias =
      read_bias(config, "enable_bias", true);
  Decoder decoder = repeat_block(config, block, {"num_hidden_layers", 12});
  decoder.family = "opt";
  decoder.model_class = "OPTForCausalLM";
  read_vocabulary(config, decoder, 50272, true);
  decoder.deviation = read_real(config, "init_std", 0.02, 100);
  decoder.embedding_channels =
      read_derived_size(config, {"word_embed_proj_dim", block.channels, {}, kMostChannels});
  const bool has_final_norm = norms_before && !read_flag(config, "_remove_final_layer_norm", false);
  decoder.parts = model_parts(decoder.embedding_channels != block.channels, has_final_norm);
  decoder.position_offset = kPositionOffset;
  decoder.positions =
      kPositionOffset + read_size(config, {"max_position_embeddings", 2048, {}, kMostPositions});
  decoder.dropouts = {"dropout", "attention_dropout", "layerdrop"};
  return decoder;
}

}  // namespace shardplan
