#include "planner/model.h"

#include <fmt/format.h>

#include <filesystem>

#include "planner/families/family.h"
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

const Family& family_of(Fields& fields) {
  std::vector<std::string> known;
  for (const Family& family : families())
    known.emplace_back(family.model_type);
  const Node* type = fields.find("model_type");
  if (type == nullptr) {
    if (const Family* family = family_of_class(fields)) return *family;
    fields.fail("'model_type' is missing: not the config.json of a Hugging Face model");
  }
  const std::string name = text_of(*type, "model_type");
  for (const Family& family : families())
    if (family.model_type == name) return family;
  fail(*type, "not supported yet: " + unknown_name("model family", name, known));
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

ModelGraph build_model(const ModelJob& model, std::optional<int> layers) {
  const std::string path = config_path(model);
  ModelGraph graph = model_from_config(read_text(path), path, model.tie_word_embeddings, layers);
  if (model.trainable || model.lora)  // of the model itself, adapters train nothing by default
    choose_trainable(graph, model.trainable.value_or(std::vector<std::string>{}));
  return model.lora ? with_lora(graph, *model.lora) : graph;
}

ModelGraph model_from_config(std::string_view config_json, const std::string& source,
                             std::optional<bool> tie_word_embeddings, std::optional<int> layers) {
  const Node document = parse_json(config_json, source);
  ModelConfig config{Fields(document, ""), tie_word_embeddings, layers};
  return family_of(config.fields).build(config);
}

}  // namespace shardplan
