#include <cmath>

#include "planner/families/decoder.h"
#include "planner/families/gpt2_parts.h"

namespace shardplan {
namespace {

Part attention_part() {
  return {"attn",
          PartRole::Attention,
          "GPT2Attention",
          {{"c_attn", PartRole::PackedQkv},
           {"c_proj", PartRole::Output},
           {"attn_dropout", PartRole::Module, "Dropout"},
           {"resid_dropout", PartRole::Module, "Dropout"}}};
}

Block read_block(ModelConfig& config) {
  Block block;
  block.class_name = "GPT2Block";
  block.parts = gpt2_block_parts("GPT2", attention_part());
  block.channels = read_size(config, {"n_embd", 768, "hidden_size", kMostChannels});
  block.intermediate = read_derived_size(config, {"n_inner", 4 * block.channels});
  read_heads(config, block,
             {.heads_otherwise = 12, .heads_key = "n_head", .heads_alias = "num_attention_heads"});
  block.norm = layer_norm(read_real(config, "layer_norm_epsilon", 1e-5, 1));
  block.activation = read_activation(config, "activation_function", "gelu_new");
  if (!read_flag(config, "scale_attn_weights", true)) block.scale = 1;
  if (read_flag(config, "add_cross_attention", false))
    fail(*config.fields.find("add_cross_attention"), "add_cross_attention is not supported yet");
  block.linear_class = "Conv1D";
  return block;
}

}  // namespace

Decoder describe_gpt2(ModelConfig& config) {
  const double deviation = read_real(config, "initializer_range", 0.02, 100);
  Decoder decoder = repeat_block(config, read_block(config), {"n_layer", 12, "num_hidden_layers"});
  decoder.family = "gpt2";
  decoder.model_class = "GPT2LMHeadModel";
  decoder.parts = gpt2_model_parts("GPT2");
  // OpenAI's scheme, which transformers keeps: two residual projections a block.
  for (Block& block : decoder.blocks)
    block.residual_deviation =
        deviation / std::sqrt(2.0 * static_cast<double>(decoder.blocks.size()));
  if (read_flag(config, "scale_attn_by_inverse_layer_idx", false))
    for (std::size_t layer = 0; layer < decoder.blocks.size(); ++layer)
      decoder.blocks[layer].scale /= static_cast<double>(layer + 1);
  read_vocabulary(config, decoder, 50257, true);
  decoder.positions =
      read_derived_size(config, {"n_positions", 1024, "max_position_embeddings", kMostPositions});
  decoder.dropouts = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
  return decoder;
}

}  // namespace shardplan
