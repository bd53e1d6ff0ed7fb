#include "planner/families/decoder.h"

namespace shardplan {
namespace {

std::vector<Part> block_parts() {
  return {{"input_layernorm", PartRole::AttentionNorm},
          {"self_attention",
           PartRole::Attention,
           "BloomAttention",
           {{"query_key_value", PartRole::PackedQkv},
            {"dense", PartRole::Output},
            {"attention_dropout", PartRole::Module, "Dropout"}}},
          {"post_attention_layernorm", PartRole::MlpNorm},
          {"mlp",
           PartRole::Mlp,
           "BloomMLP",
           {{"dense_h_to_4h", PartRole::Up},
            {"gelu_impl", PartRole::Activation, "BloomGelu"},
            {"dense_4h_to_h", PartRole::Down}}}};
}

std::vector<Part> model_parts() {
  return {{"transformer",
           PartRole::Module,
           "BloomModel",
           {{"word_embeddings", PartRole::Embedding},
            {"word_embeddings_layernorm", PartRole::EmbeddingNorm},
            {"h", PartRole::Blocks},
            {"ln_f", PartRole::FinalNorm}}},
          {"lm_head", PartRole::Head}};
}

}  // namespace

Decoder describe_bloom(ModelConfig& config) {
  Block block;
  block.class_name = "BloomBlock";
  block.parts = block_parts();
  block.channels = read_size(config, {"n_embed", 64, "hidden_size", kMostChannels});
  block.intermediate = 4 * block.channels;
  read_heads(config, block,
             {.heads_otherwise = 8,
              .heads_key = "n_head",
              .heads_alias = "num_attention_heads",
              .kv_key = {}});
  block.packing = Packing::ByGroup;
  block.alibi = true;
  block.norm = layer_norm(read_real(config, "layer_norm_epsilon", 1e-5, 1));
  block.activation = {OperatorKind::Gelu, true, "BloomGelu"};
  block.qkv_bias = block.output_bias = block.mlp_bias = Bias::Yes;
  if (read_flag(config, "apply_residual_connection_post_layernorm", false))
    fail(*config.fields.find("apply_residual_connection_post_layernorm"),
         "apply_residual_connection_post_layernorm is not supported yet");
  Decoder decoder = repeat_block(config, block, {"n_layer", 2, "num_hidden_layers"});
  decoder.family = "bloom";
  decoder.model_class = "BloomForCausalLM";
  decoder.parts = model_parts();
  read_vocabulary(config, decoder, 250880, true);
  decoder.dropouts = {"hidden_dropout", "attention_dropout"};
  return decoder;
}

}  // namespace shardplan
