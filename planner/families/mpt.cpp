#include "planner/families/decoder.h"

namespace shardplan {
namespace {

std::vector<Part> block_parts() {
  return {{"norm_1", PartRole::AttentionNorm},
          {"attn",
           PartRole::Attention,
           "MptAttention",
           {{"Wqkv", PartRole::PackedQkv}, {"out_proj", PartRole::Output}}},
          {"norm_2", PartRole::MlpNorm},
          {"ffn",
           PartRole::Mlp,
           "MptMLP",
           {{"up_proj", PartRole::Up},
            {"act", PartRole::Activation, "GELU"},
            {"down_proj", PartRole::Down}}},
          {"resid_attn_dropout", PartRole::Module, "Dropout"}};
}

std::vector<Part> model_parts() {
  return {{"transformer",
           PartRole::Module,
           "MptModel",
           {{"wte", PartRole::Embedding},
            {"blocks", PartRole::Blocks},
            {"norm_f", PartRole::FinalNorm}}},
          {"lm_head", PartRole::Head}};
}

}  // namespace

Decoder describe_mpt(ModelConfig& config) {
  Block block;
  block.class_name = "MptBlock";
  block.parts = block_parts();
  block.channels = read_size(config, {"d_model", 2048, "hidden_size", kMostChannels});
  block.intermediate =
      block.channels * read_derived_size(config, {"expansion_ratio", 4, {}, kMostExperts});
  read_heads(config, block,
             {.heads_otherwise = 16,
              .heads_key = "n_heads",
              .heads_alias = "num_attention_heads",
              .kv_key = {}});
  block.alibi = true;
  block.norm = layer_norm(read_real(config, "layer_norm_epsilon", 1e-5, 1));
  block.norm.parameters = 1;  // the class drops every bias
  block.activation = {OperatorKind::Gelu, false, "GELU"};
  Decoder decoder = repeat_block(config, block, {"n_layers", 24, "num_hidden_layers"});
  decoder.family = "mpt";
  decoder.model_class = "MptForCausalLM";
  decoder.parts = model_parts();
  read_vocabulary(config, decoder, 50368, true);
  decoder.dropouts = {"resid_pdrop", "emb_pdrop"};
  return decoder;
}

}  // namespace shardplan
