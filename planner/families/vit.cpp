#include <array>

#include "planner/families/config_fields.h"
#include "planner/families/image.h"
#include "planner/families/module_builder.h"
#include "planner/families/transformer_block.h"

namespace shardplan {
namespace {

std::vector<Part> block_parts() {
  return {
      {"attention",
       PartRole::Attention,
       "ViTAttention",
       {{"q_proj", PartRole::Query},
        {"k_proj", PartRole::Key},
        {"v_proj", PartRole::Value},
        {"o_proj", PartRole::Output}}},
      {"layernorm_before", PartRole::AttentionNorm},
      {"layernorm_after", PartRole::MlpNorm},
      {"mlp",
       PartRole::Mlp,
       "ViTMLP",
       {{"activation_fn", PartRole::Activation}, {"fc1", PartRole::Up}, {"fc2", PartRole::Down}}},
      {"dropout", PartRole::Module, "Dropout"}};
}

Block read_block(ModelConfig& config) {
  Block block;
  block.class_name = "ViTLayer";
  block.parts = block_parts();
  block.channels = read_size(config, {"hidden_size", 768, {}, kMostChannels});
  block.intermediate = read_size(config, {"intermediate_size", 3072});
  read_heads(config, block, {.heads_otherwise = 12, .kv_key = {}});
  block.norm = layer_norm(read_real(config, "layer_norm_eps", 1e-12, 1));
  block.activation = read_activation(config, "hidden_act", "gelu");
  block.qkv_bias = block.key_bias = read_bias(config, "qkv_bias", true);
  block.output_bias = block.mlp_bias = Bias::Yes;
  block.bidirectional = true;
  return block;
}

/// As many as id2label names; two when the file has no labels.
std::int64_t read_labels(ModelConfig& config) {
  if (const Node* labels = config.fields.find("id2label");
      labels != nullptr && labels->kind == Node::Kind::Mapping)
    return static_cast<std::int64_t>(labels->entries.size());
  return read_derived_size(config, {"num_labels", 2});
}

}  // namespace

ModelGraph build_vit(ModelConfig& config) {
  const Block block = read_block(config);
  const std::int64_t channels = block.channels;
  const Image image = read_image(config, {.size = 224, .patch = 16});
  const std::vector<Block> blocks(
      static_cast<std::size_t>(read_layers(config, {"num_hidden_layers", 12})), block);
  const std::int64_t labels = read_labels(config);
  if (labels < 1) config.fields.fail("id2label names no label: there is nothing to train on");

  ModelGraph graph;
  graph.family = "vit";
  graph.block_classes = {block.class_name};
  ModuleBuilder modules(graph, read_real(config, "initializer_range", 0.02, 100));
  const int pixels = add_pixels(graph, image);
  const int targets =
      add(graph, OperatorKind::Input, "targets", Attributes{{Attribute::Tokens, 1}}, {});
  modules.module("", "ViTForImageClassification");
  modules.module("vit", "ViTModel");
  const std::string path = "vit.embeddings";
  modules.module(path, "ViTEmbeddings");
  const Operator token = modules.leading_token(path, "cls_token", {1, 1, channels});
  const Operator position =
      modules.position_parameter(path, "position_embeddings", image.patches() + 1, channels);
  modules.module(path + ".patch_embeddings", "ViTPatchEmbeddings");
  const Operator patches = modules.convolution(path + ".patch_embeddings.projection", "Conv2d",
                                               image.channels, channels, image.window(), Bias::Yes);
  modules.module(path + ".dropout", "Dropout");
  const auto parts = declare_blocks(modules, "vit.layers", blocks);
  const Operator norm = modules.norm("vit.layernorm", block.norm, {.channels = channels});
  const Operator classifier = modules.linear("classifier", channels, labels, Bias::Yes);

  int hidden = graph.add(position, {graph.add(token, {graph.add(patches, {pixels})})});
  hidden = graph.add(norm, {run_blocks(graph, blocks, parts, hidden)});
  hidden = add_token_slice(graph, "vit", channels, 0, 1, hidden);
  add_loss(graph, graph.add(classifier, {hidden}), targets, labels);
  remark_on_the_rest(
      config,
      std::array<std::string_view, 2>{"hidden_dropout_prob", "attention_probs_dropout_prob"},
      "ViTForImageClassification");
  graph.remarks = std::move(config.remarks);
  return graph;
}

}  // namespace shardplan
