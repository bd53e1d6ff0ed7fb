#include "planner/model.h"

#include <fmt/format.h>

#include <filesystem>

#include "planner/families/decoder_graph.h"
#include "planner/families/family.h"
#include "planner/graph_reader.h"
#include "planner/lora.h"
#include "planner/trainable.h"
#include "plans/document.h"
#include "plans/names.h"
#include "plans/presets.h"

namespace shardplan {
namespace {

/// A config without a model_type is told by the class it names.
const Family* family_of_class(Fields& fields) {
  const Node* classes = fields.find("architectures");
  if (classes == nullptr) return nullptr;
  for (const std::string& name : texts_of(*classes, "architectures"))
    for (const Family& family : families())
      if (family.model_class == name) return &family;
  return nullptr;
}

const Family& family_called(const std::string& name) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.model_type == name) return family;
    known.emplace_back(family.model_type);
  }
  throw InputError(unknown_name("model family", name, known));
}

const Family& family_of(Fields& fields) {
  const Node* type = fields.find("model_type");
  if (type == nullptr) {
    if (const Family* family = family_of_class(fields)) return *family;
    fields.fail("'model_type' is missing: not the config.json of a Hugging Face model");
  }
  const std::string name = text_of(*type, "model_type");
  try {
    return family_called(name);
  } catch (const InputError& error) {
    fail(*type,
         fmt::format("not supported yet: {}; --as-family reads it as one of them", error.what()));
  }
}

}  // namespace

std::string config_path(const ModelJob& model) {
  namespace fs = std::filesystem;
  if (!model.preset.empty()) {
    const std::string folder = data_folder();
    return folder + "/models/" + find_preset(read_presets(folder), model.preset).key +
           "/config.json";
  }
  std::error_code error;  // a path that cannot be looked at fails when it is read
  const bool is_folder = fs::is_directory(model.hf_config, error);
  return is_folder ? (fs::path(model.hf_config) / "config.json").string() : model.hf_config;
}

namespace {

/// The model as its preset, config or graph has it.
ModelGraph described_model(const ModelJob& model, std::optional<int> layers) {
  if (model.graph.empty()) {
    const std::string path = config_path(model);
    return model_from_config(read_text(path), path, model.tie_word_embeddings, layers,
                             model.as_family);
  }
  if (layers) throw InputError("a graph YAML has the number of blocks that it has");
  return read_graph(read_text(model.graph), model.graph);
}

}  // namespace

ModelGraph adapted(ModelGraph graph, const ModelJob& model) {
  if (model.trainable || model.lora)  // of the model itself, adapters train nothing by default
    choose_trainable(graph, model.trainable.value_or(std::vector<std::string>{}));
  return model.lora ? with_lora(graph, *model.lora) : graph;
}

ModelGraph build_model(const ModelJob& model, std::optional<int> layers) {
  return adapted(described_model(model, layers), model);
}

ModelGraph model_from_config(std::string_view config_json, const std::string& source,
                             std::optional<bool> tie_word_embeddings, std::optional<int> layers,
                             const std::string& as_family) {
  const Node document = parse_json(config_json, source);
  ModelConfig config{Fields(document, ""), tie_word_embeddings, layers};
  const Family& family = as_family.empty() ? family_of(config.fields) : family_called(as_family);
  if (!as_family.empty())
    config.remarks.push_back(fmt::format("read as of the family {}", as_family));
  return family.describe != nullptr ? build_decoder(config, family.describe(config))
                                    : family.build(config);
}

}  // namespace shardplan
