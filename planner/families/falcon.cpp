#include "planner/families/decoder.h"

namespace shardplan {
namespace {

/// How many norms read the residual stream, and where, changed from model to model.
enum class Norms { One, TwoInParallel, TwoInSequence };

std::vector<Part> block_parts(Norms norms) {
  std::vector<Part> parts{{"self_attention",
                           PartRole::Attention,
                           "FalconAttention",
                           {{"query_key_value", PartRole::PackedQkv},
                            {"dense", PartRole::Output},
                            {"attention_dropout", PartRole::Module, "Dropout"}}},
                          {"mlp",
                           PartRole::Mlp,
                           "FalconMLP",
                           {{"dense_h_to_4h", PartRole::Up},
                            {"act", PartRole::Activation},
                            {"dense_4h_to_h", PartRole::Down}}}};
  if (norms == Norms::TwoInParallel) {
    parts.push_back({"ln_attn", PartRole::AttentionNorm});
    parts.push_back({"ln_mlp", PartRole::MlpNorm});
    return parts;
  }
  if (norms == Norms::TwoInSequence)
    parts.push_back({"post_attention_layernorm", PartRole::MlpNorm});
  parts.push_back({"input_layernorm", PartRole::AttentionNorm});
  return parts;
}

std::vector<Part> model_parts() {
  return {{"transformer",
           PartRole::Module,
           "FalconModel",
           {{"word_embeddings", PartRole::Embedding},
            {"h", PartRole::Blocks},
            {"ln_f", PartRole::FinalNorm},
            {"rotary_emb", PartRole::Module, "FalconRotaryEmbedding"}}},
          {"lm_head", PartRole::Head}};
}

/// The new architecture groups queries by key-value head; before, there was one such head for all,
/// or one per query.
void read_falcon_heads(ModelConfig& config, Block& block, bool new_architecture) {
  read_heads(config, block,
             {.heads_otherwise = 71, .kv_key = new_architecture ? "num_kv_heads" : ""});
  block.packing = Packing::ByGroup;
  if (!new_architecture && read_flag(config, "multi_query", true)) {
    block.kv_heads = 1;
    block.packing = Packing::ByRow;
  }
}

}  // namespace

Decoder describe_falcon(ModelConfig& config) {
  const bool new_architecture = read_flag(config, "new_decoder_architecture", false);
  Block block;
  block.class_name = "FalconDecoderLayer";
  block.linear_class = "FalconLinear";
  block.channels = read_size(config, {"hidden_size", 4544, {}, kMostChannels});
  block.intermediate = read_derived_size(config, {"ffn_hidden_size", 4 * block.channels});
  read_falcon_heads(config, block, new_architecture);
  block.norm = layer_norm(read_real(config, "layer_norm_epsilon", 1e-5, 1));
  block.activation = read_activation(config, "activation", "gelu");
  block.qkv_bias = block.output_bias = block.mlp_bias = read_bias(config, "bias", false);
  block.alibi = read_flag(config, "alibi", false);
  read_rope(config, block, {});
  block.rotates = !block.alibi;
  block.parallel = read_flag(config, "parallel_attn", true) || new_architecture;
  const std::int64_t norms =
      read_derived_size(config, {"num_ln_in_parallel_attn", new_architecture ? 2 : 1});
  block.parts = block_parts(!block.parallel ? Norms::TwoInSequence
                            : norms == 2    ? Norms::TwoInParallel
                                            : Norms::One);
  Decoder decoder = repeat_block(config, block, {"num_hidden_layers", 32});
  decoder.family = "falcon";
  decoder.model_class = "FalconForCausalLM";
  decoder.parts = model_parts();
  read_vocabulary(config, decoder, 65024, true);
  decoder.buffers_bytes = rotary_buffers_bytes(block);
  decoder.dropouts = {"hidden_dropout", "attention_dropout"};
  return decoder;
}

}  // namespace shardplan
