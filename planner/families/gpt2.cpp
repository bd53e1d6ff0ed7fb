#include <fmt/format.h>

#include <array>
#include <cmath>

#include "planner/families/family.h"
#include "planner/families/module_builder.h"

namespace shardplan {
namespace {

struct Block {
  std::int64_t channels = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  double epsilon = 1e-5;
  bool tanh_gelu = true;
  bool scales_attention = true;
  bool scales_by_layer = false;  // attention scores also divided by the block's number
  double deviation = 0.02;
  double residual_deviation = 0.02;  // of the projections that feed the residual stream
};

bool read_tanh_gelu(Fields& fields) {
  std::string activation = "gelu_new";
  fields.read("activation_function", activation);
  if (activation == "gelu") return false;
  for (const char* tanh : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"})
    if (activation == tanh) return true;
  fail(*fields.find("activation_function"),
       fmt::format("activation_function '{}' is not supported yet; supported: gelu_new, "
                   "gelu_pytorch_tanh, gelu_fast, gelu",
                   activation));
}

Block read_block(ModelConfig& config, std::int64_t layers) {
  Fields& fields = config.fields;
  Block block;
  block.channels = required_integer(config, "n_embd", kMostChannels, "hidden_size");
  block.heads = required_integer(config, "n_head", kMostChannels, "num_attention_heads");
  if (block.channels % block.heads != 0)
    fields.fail(fmt::format("n_head {} does not divide n_embd {}", block.heads, block.channels));
  block.intermediate = 4 * block.channels;
  fields.read("n_inner", block.intermediate, 1, kMostIntermediate);
  fields.read("layer_norm_epsilon", block.epsilon, 0, 1);
  block.tanh_gelu = read_tanh_gelu(fields);
  fields.read("scale_attn_weights", block.scales_attention);
  fields.read("scale_attn_by_inverse_layer_idx", block.scales_by_layer);
  bool cross_attention = false;
  fields.read("add_cross_attention", cross_attention);
  if (cross_attention)
    fail(*fields.find("add_cross_attention"), "add_cross_attention is not supported yet");
  fields.read("initializer_range", block.deviation, 0, 100);
  // OpenAI's scheme, which transformers keeps: two residual projections a block.
  block.residual_deviation = block.deviation / std::sqrt(2.0 * static_cast<double>(layers));
  return block;
}

int add_block(ModelGraph& graph, ModuleBuilder& modules, const Block& block, std::int64_t layer,
              int input) {
  const std::string path = fmt::format("transformer.h.{}", layer);
  const auto heads = static_cast<double>(block.heads);
  const Attributes channels{{Attribute::OutFeatures, static_cast<double>(block.channels)}};
  modules.module(path, "GPT2Block");
  const Operator before_attention =
      modules.layer_norm(path + ".ln_1", block.channels, block.epsilon);
  modules.module(path + ".attn", "GPT2Attention");
  const Operator packed =
      modules.conv1d(path + ".attn.c_attn", block.channels, 3 * block.channels, block.deviation);
  const Operator output = modules.conv1d(path + ".attn.c_proj", block.channels, block.channels,
                                         block.residual_deviation);
  modules.module(path + ".attn.attn_dropout", "Dropout");
  modules.module(path + ".attn.resid_dropout", "Dropout");
  const Operator before_mlp = modules.layer_norm(path + ".ln_2", block.channels, block.epsilon);
  modules.module(path + ".mlp", "GPT2MLP");
  const Operator widen =
      modules.conv1d(path + ".mlp.c_fc", block.channels, block.intermediate, block.deviation);
  const Operator narrow = modules.conv1d(path + ".mlp.c_proj", block.intermediate, block.channels,
                                         block.residual_deviation);
  modules.module(path + ".mlp.act", block.tanh_gelu ? "NewGELUActivation" : "GELUActivation");
  modules.module(path + ".mlp.dropout", "Dropout");

  const double head_dim = static_cast<double>(block.channels) / heads;
  const double scale = (block.scales_attention ? 1 / std::sqrt(head_dim) : 1) /
                       (block.scales_by_layer ? static_cast<double>(layer + 1) : 1);
  const int qkv = graph.add(packed, {graph.add(before_attention, {input})});
  const int mixed = add(graph, OperatorKind::PackedAttention, path + ".attn",
                        {{Attribute::Heads, heads},
                         {Attribute::KvHeads, heads},
                         {Attribute::HeadDim, head_dim},
                         {Attribute::Scale, scale}},
                        {qkv});
  const int attended = graph.add(output, {mixed});
  const int middle = add(graph, OperatorKind::Add, path, channels, {input, attended});
  const int widened = graph.add(widen, {graph.add(before_mlp, {middle})});
  const int activated = add(graph, OperatorKind::Gelu, path + ".mlp.act",
                            {{Attribute::OutFeatures, static_cast<double>(block.intermediate)},
                             {Attribute::TanhApproximation, block.tanh_gelu ? 1.0 : 0.0}},
                            {widened});
  return add(graph, OperatorKind::Add, path, channels, {middle, graph.add(narrow, {activated})});
}

}  // namespace

ModelGraph build_gpt2(ModelConfig& config) {
  constexpr std::array<std::string_view, 3> kDropouts{"attn_pdrop", "embd_pdrop", "resid_pdrop"};
  ModelGraph graph;
  graph.family = "gpt2";
  graph.block_class = "GPT2Block";
  const std::int64_t layers = layers_of(config, "n_layer", "num_hidden_layers");
  const Block block = read_block(config, layers);
  const std::int64_t vocabulary = required_integer(config, "vocab_size", kMostVocabulary);
  std::int64_t positions = 1024;  // class default
  config.fields.read("max_position_embeddings", positions, 1, kMostPositions);
  config.fields.read("n_positions", positions, 1, kMostPositions);

  ModuleBuilder modules(graph, block.deviation);
  const auto [tokens, targets] = add_inputs(graph);
  modules.module("", "GPT2LMHeadModel");
  modules.module("transformer", "GPT2Model");
  const Operator embedding = modules.embedding("transformer.wte", vocabulary, block.channels);
  const Operator position =
      modules.position_embedding("transformer.wpe", positions, block.channels);
  int hidden = graph.add(position, {graph.add(embedding, {tokens})});
  modules.module("transformer.drop", "Dropout");
  modules.module("transformer.h", "ModuleList");
  for (std::int64_t layer = 0; layer < layers; ++layer)
    hidden = add_block(graph, modules, block, layer, hidden);
  hidden =
      graph.add(modules.layer_norm("transformer.ln_f", block.channels, block.epsilon), {hidden});
  const Operator head = is_tied(config, true)
                            ? modules.tied_head("lm_head", embedding)
                            : modules.linear("lm_head", block.channels, vocabulary, Bias::No);
  add_loss(graph, graph.add(head, {hidden}), targets, vocabulary);
  graph.remarks = remarks_on(config, kDropouts, "GPT2LMHeadModel");
  return graph;
}

}  // namespace shardplan
