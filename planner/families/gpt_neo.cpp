#include <algorithm>

#include "planner/families/decoder.h"
#include "planner/families/gpt2_parts.h"

namespace shardplan {
namespace {

Part attention_part() {
  return {"attn",
          PartRole::Module,
          "GPTNeoAttention",
          {{"attention",
            PartRole::Attention,
            "GPTNeoSelfAttention",
            {{"attn_dropout", PartRole::Module, "Dropout"},
             {"resid_dropout", PartRole::Module, "Dropout"},
             {"k_proj", PartRole::Key},
             {"v_proj", PartRole::Value},
             {"q_proj", PartRole::Query},
             {"out_proj", PartRole::Output}}}}};
}

/// attention_types is a list of [kinds, how often]: [[["global", "local"], 12]].
std::vector<bool> read_local_layers(ModelConfig& config) {
  std::vector<bool> local;
  const Node* node = config.fields.find("attention_types");
  if (node == nullptr) return {false, true};
  const auto is_pair = [](const Node& item) {
    return item.kind == Node::Kind::Sequence && item.items.size() == 2;
  };
  if (node->kind != Node::Kind::Sequence || !std::ranges::all_of(node->items, is_pair))
    fail(*node, "attention_types: expected a list of [kinds, number]");
  for (const Node& item : node->items) {
    const std::vector<std::string> kinds = texts_of(item.items[0], "attention_types");
    const std::int64_t times = integer_of(item.items[1], "attention_types", 1, kMostLayers);
    for (std::int64_t i = 0; i < times; ++i)
      for (const std::string& kind : kinds)
        local.push_back(kind == "local");
  }
  return local;
}

}  // namespace

Decoder describe_gpt_neo(ModelConfig& config) {
  Block block;
  block.class_name = "GPTNeoBlock";
  block.parts = gpt2_block_parts("GPTNeo", attention_part());
  block.channels = read_size(config, {"hidden_size", 2048, {}, kMostChannels});
  block.intermediate = read_derived_size(config, {"intermediate_size", 4 * block.channels});
  read_heads(
      config, block,
      {.heads_otherwise = 16, .heads_key = "num_heads", .heads_alias = "num_attention_heads"});
  block.scale = 1;  // the class leaves scores unscaled
  block.norm = layer_norm(read_real(config, "layer_norm_epsilon", 1e-5, 1));
  block.activation = read_activation(config, "activation_function", "gelu_new");
  block.output_bias = block.mlp_bias = Bias::Yes;
  Decoder decoder = repeat_block(config, block, {"num_layers", 24, "num_hidden_layers"});
  decoder.family = "gpt_neo";
  decoder.model_class = "GPTNeoForCausalLM";
  decoder.parts = gpt2_model_parts("GPTNeo");
  read_vocabulary(config, decoder, 50257, true);
  decoder.positions = read_size(config, {"max_position_embeddings", 2048, {}, kMostPositions});
  const std::int64_t window = read_derived_size(config, {"window_size", 256, {}, kMostPositions});
  const std::vector<bool> local = read_local_layers(config);
  for (std::size_t layer = 0; layer < decoder.blocks.size() && !local.empty(); ++layer)
    if (local[layer % local.size()]) decoder.blocks[layer].window = window;
  // Every block keeps a causal mask of booleans.
  decoder.buffers_bytes =
      static_cast<std::int64_t>(decoder.blocks.size()) * decoder.positions * decoder.positions;
  decoder.dropouts = {"resid_dropout", "embed_dropout", "attention_dropout"};
  return decoder;
}

}  // namespace shardplan
