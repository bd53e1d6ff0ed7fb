#include "planner/families/llama.h"

namespace shardplan {

Decoder describe_starcoder2(ModelConfig& config) {
  const LlamaDefaults defaults{.prefix = "Starcoder2",
                               .channels = 3072,
                               .intermediate = 12288,
                               .layers = 30,
                               .heads = 24,
                               .kv_heads = 2,
                               .vocabulary = 49152,
                               .tied = true};
  Block block = read_llama_block(config, defaults);
  block.parts[1].children = {
      {"c_fc", PartRole::Up}, {"c_proj", PartRole::Down}, {"act", PartRole::Activation}};
  block.norm = layer_norm(read_real(config, "norm_epsilon", 1e-5, 1));
  block.activation = read_activation(config, "hidden_act", "gelu_pytorch_tanh");
  block.qkv_bias = block.key_bias = block.output_bias = block.mlp_bias =
      read_bias(config, "use_bias", true);
  config.fields.read("sliding_window", block.window, 1, kMostPositions);
  Decoder decoder = llama_decoder(config, "starcoder2", defaults, block);
  decoder.dropouts = {"attention_dropout", "residual_dropout", "embedding_dropout"};
  return decoder;
}

}  // namespace shardplan
