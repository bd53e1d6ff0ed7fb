#include "planner/families/decoder.h"
#include "planner/families/gpt2_parts.h"

namespace shardplan {
namespace {

Part attention_part() {
  return {"attn",
          PartRole::Attention,
          "GPTBigCodeAttention",
          {{"c_attn", PartRole::PackedQkv},
           {"c_proj", PartRole::Output},
           {"resid_dropout", PartRole::Module, "Dropout"}}};
}

}  // namespace

Decoder describe_gpt_bigcode(ModelConfig& config) {
  Block block;
  block.class_name = "GPTBigCodeBlock";
  block.parts = gpt2_block_parts("GPTBigCode", attention_part());
  block.channels = read_size(config, {"n_embd", 768, "hidden_size", kMostChannels});
  block.intermediate = read_derived_size(config, {"n_inner", 4 * block.channels});
  const bool multi_query = read_flag(config, "multi_query", true);
  read_heads(config, block,
             {.heads_otherwise = 12,
              .heads_key = "n_head",
              .heads_alias = "num_attention_heads",
              .kv_key = {}});
  if (multi_query) block.kv_heads = 1;
  block.packing = multi_query ? Packing::ByRow : Packing::ByGroup;
  block.norm = layer_norm(read_real(config, "layer_norm_epsilon", 1e-5, 1));
  block.activation = read_activation(config, "activation_function", "gelu_pytorch_tanh");
  block.qkv_bias = block.output_bias = block.mlp_bias = Bias::Yes;
  if (!read_flag(config, "scale_attn_weights", true)) block.scale = 1;
  Decoder decoder = repeat_block(config, block, {"n_layer", 12, "num_hidden_layers"});
  decoder.family = "gpt_bigcode";
  decoder.model_class = "GPTBigCodeForCausalLM";
  decoder.parts = gpt2_model_parts("GPTBigCode");
  read_vocabulary(config, decoder, 50257, true);
  decoder.positions =
      read_size(config, {"n_positions", 1024, "max_position_embeddings", kMostPositions});
  decoder.buffers_bytes = decoder.positions * decoder.positions;  // a causal mask of booleans
  decoder.dropouts = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
  return decoder;
}

}  // namespace shardplan
