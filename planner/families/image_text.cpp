#include <fmt/format.h>

#include <array>

#include "planner/families/decoder_graph.h"
#include "planner/families/vision_tower.h"
#include "plans/names.h"

namespace shardplan {
namespace {

/// The language model inside of another: its modules stand below model.language_model, its head
/// stays at the top.
Decoder read_language_model(ModelConfig& config, std::string_view otherwise_type, bool tied) {
  ModelConfig text = part_of(config, "text_config");
  // The outer file decides; what the inner one says about tying does not count.
  text.tie_word_embeddings = tied;
  std::string type(otherwise_type);
  text.fields.read("model_type", type);
  const Family* family = nullptr;
  std::vector<std::string> types;
  for (const Family& one : families()) {
    if (one.describe == nullptr) continue;
    types.emplace_back(one.model_type);
    if (one.model_type == type) family = &one;
  }
  if (family == nullptr)
    text.fields.fail("not supported yet: " + unknown_name("language model", type, types));
  Decoder decoder = family->describe(text);
  if (decoder.parts.size() != 2 || decoder.parts[1].role != PartRole::Head)
    text.fields.fail(fmt::format("{} inside of another model is not supported yet", type));
  decoder.parts[0].name = "model.language_model";
  config.remarks.insert(config.remarks.end(), text.remarks.begin(), text.remarks.end());
  config.remarks.push_back(
      fmt::format("head and embedding are {}: tie_word_embeddings of the outer config counts",
                  tied ? "tied" : "separate"));
  return decoder;
}

/// Marks the parameters that no way leads from to the loss: features are taken before the last
/// blocks of a vision tower. Returns how many elements they have.
std::int64_t mark_unreached(ModelGraph& graph) {
  std::vector<bool> on_the_way(boost::num_vertices(graph.dag), false);
  on_the_way.back() = true;
  for (Parameter& parameter : graph.parameters)
    parameter.reached = false;
  for (int vertex = static_cast<int>(on_the_way.size()) - 1; vertex >= 0; --vertex) {
    if (!on_the_way[static_cast<std::size_t>(vertex)]) continue;
    for (const int input : graph.inputs_of(vertex))
      on_the_way[static_cast<std::size_t>(input)] = true;
    for (const int parameter : graph.dag[vertex].parameters)
      graph.parameters[parameter].reached = true;
  }
  std::int64_t unreached = 0;
  for (const Parameter& parameter : graph.parameters)
    if (!parameter.reached) unreached += parameter.elements();
  return unreached;
}

/// What the two models share: tokens of the text whose places hold images get their features.
class ImageTextBuilder {
 public:
  ImageTextBuilder(ModelConfig& config, VisionTower tower, Decoder decoder)
      : config_(config), tower_(std::move(tower)), decoder_(std::move(decoder)) {}

  /// `project(modules, pixels)` declares the projector and returns a function to run it.
  template <typename Declare>
  ModelGraph build(std::string_view family, const std::string& prefix, Declare declare) {
    graph_.family = family;
    const std::string model_class = prefix + "ForConditionalGeneration";
    graph_.block_classes = {tower_.block_class(), decoder_.blocks.front().class_name};
    ModuleBuilder modules(graph_, decoder_.deviation);
    const auto [tokens, targets] = add_inputs(graph_);
    const int pixels = add_pixels(graph_, tower_.image());
    modules.module("", model_class);
    modules.module("model", prefix + "Model");
    tower_.declare(modules, "model.vision_tower");
    modules.module("model.multi_modal_projector", prefix + "MultiModalProjector");
    const int features = declare(modules, tower_, pixels);
    DecoderStack stack(modules, decoder_);
    const int text = stack.embed(tokens);
    const int merged = add(graph_, OperatorKind::MergeTokens, "model",
                           decoder_.blocks.front().channels, {text, features, tokens});
    add_loss(graph_, stack.logits(stack.run(merged)), targets, decoder_.vocabulary);
    graph_.buffers_bytes = decoder_.buffers_bytes + tower_.buffers_bytes();
    remark_on_the_rest(config_, {}, model_class);
    for (std::string& remark : tower_.take_remarks())
      config_.remarks.push_back(std::move(remark));
    config_.remarks.emplace_back("one image per sequence is planned");
    if (const std::int64_t unreached = mark_unreached(graph_); unreached > 0)
      config_.remarks.push_back(fmt::format(
          "the loss does not depend on {} parameters of the vision tower: planned without gradient",
          unreached));
    graph_.remarks = std::move(config_.remarks);
    return std::move(graph_);
  }

 private:
  ModelConfig& config_;
  VisionTower tower_;
  Decoder decoder_;
  ModelGraph graph_;
};

constexpr const char* kProjector = "model.multi_modal_projector";

}  // namespace

ModelGraph build_llava(ModelConfig& config) {
  Decoder decoder = read_language_model(config, "llama", is_tied(config, false));
  const std::int64_t text = decoder.blocks.front().channels;
  const Bias bias = read_bias(config, "multimodal_projector_bias", true);
  const Activation activation = read_activation(config, "projector_hidden_act", "gelu");
  std::int64_t layer = -2;
  config.fields.read("vision_feature_layer", layer, -kMostLayers, kMostLayers);
  std::string strategy = "default";
  config.fields.read("vision_feature_select_strategy", strategy);

  const auto project = [&](ModuleBuilder& modules, VisionTower& tower, int pixels) {
    ModelGraph& graph = modules.graph();
    const std::string path = kProjector;
    const Operator first = modules.linear(path + ".linear_1", tower.channels(), text, bias);
    modules.module(path + ".act", activation.class_name);
    const Operator second = modules.linear(path + ".linear_2", text, text, bias);
    int features = tower.run_to_layer(pixels, layer);
    // The class token, or what stands in its place, is left out.
    if (strategy == "default") {
      const std::int64_t tokens = tower.image().patches() + (tower.has_class_token() ? 1 : 0);
      features = add_token_slice(graph, "model", tower.channels(), 1, tokens - 1, features);
    }
    features = activate(graph, activation, path + ".act", text, graph.add(first, {features}));
    return graph.add(second, {features});
  };
  return ImageTextBuilder(config,
                          VisionTower(part_of(config, "vision_config"), "clip_vision_model"),
                          std::move(decoder))
      .build("llava", "Llava", project);
}

ModelGraph build_gemma3(ModelConfig& config) {
  Decoder decoder = read_language_model(config, "gemma3_text", is_tied(config, true));
  const Norm norm = decoder.blocks.front().norm;
  const std::int64_t text = decoder.blocks.front().channels;
  const std::int64_t tokens = read_size(config, {"mm_tokens_per_image", 256});

  const auto project = [&](ModuleBuilder& modules, VisionTower& tower, int pixels) {
    ModelGraph& graph = modules.graph();
    const std::string path = kProjector;
    const Operator projection =
        modules.projection(path, "mm_input_projection_weight", tower.channels(), text);
    const Operator soft_norm =
        modules.norm(path + ".mm_soft_emb_norm", norm, {.channels = tower.channels()});
    modules.module(path + ".avg_pool", "AvgPool2d");
    const std::int64_t side = tower.image().patches_per_side();
    std::int64_t pool = 1;
    while ((side / pool) * (side / pool) > tokens)
      ++pool;
    Attributes pooling =
        Window{.height = side, .width = side, .size = pool, .stride = pool}.attributes();
    pooling.set(Attribute::OutFeatures, static_cast<double>(tower.channels()));
    const int pooled = add(graph, OperatorKind::AveragePool, path + ".avg_pool", std::move(pooling),
                           {tower.run_to_norm(pixels)});
    return graph.add(projection, {graph.add(soft_norm, {pooled})});
  };
  return ImageTextBuilder(config,
                          VisionTower(part_of(config, "vision_config"), "siglip_vision_model"),
                          std::move(decoder))
      .build("gemma3", "Gemma3", project);
}

}  // namespace shardplan
