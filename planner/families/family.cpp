#include "planner/families/family.h"

#include <fmt/format.h>

#include <array>

namespace shardplan {

std::span<const Family> families() {
  static constexpr std::array kFamilies{
      Family{"llama", "LlamaForCausalLM", build_llama},
      Family{"mistral", "MistralForCausalLM", build_mistral},
      Family{"qwen2", "Qwen2ForCausalLM", build_qwen2},
      Family{"qwen3", "Qwen3ForCausalLM", build_qwen3},
      Family{"gpt2", "GPT2LMHeadModel", build_gpt2},
  };
  return kFamilies;
}

std::int64_t required_integer(ModelConfig& config, std::string_view key, std::int64_t most,
                              std::string_view alias) {
  const Node* node = config.fields.find(key);
  if (node == nullptr && !alias.empty()) node = config.fields.find(alias);
  if (node == nullptr) config.fields.fail(fmt::format("'{}' is missing", key));
  return integer_of(*node, key, 1, most);
}

std::int64_t layers_of(ModelConfig& config, std::string_view key, std::string_view alias) {
  const std::int64_t layers = required_integer(config, key, kMostLayers, alias);
  if (!config.layers) return layers;
  if (*config.layers < 1 || *config.layers > kMostLayers)
    throw InputError(fmt::format("{} layers: expected 1 to {}", *config.layers, kMostLayers));
  return *config.layers;
}

bool is_tied(ModelConfig& config, bool by_class) {
  bool tied = by_class;
  config.fields.read("tie_word_embeddings", tied);
  return config.tie_word_embeddings.value_or(tied);
}

std::vector<std::string> remarks_on(ModelConfig& config, std::span<const std::string_view> dropouts,
                                    std::string_view model_class) {
  std::vector<std::string> remarks;
  for (const std::string_view key : dropouts) {
    double probability = 0;
    config.fields.read(key, probability, 0, 1);
    if (probability > 0) remarks.push_back(fmt::format("{} {} is not applied", key, probability));
  }
  if (config.fields.find("quantization_config") != nullptr)
    remarks.emplace_back("quantization_config is ignored: parameters count unquantised");
  if (const Node* classes = config.fields.find("architectures")) {
    const auto names = texts_of(*classes, "architectures");
    if (!names.empty() && names.front() != model_class)
      remarks.push_back(fmt::format("planned as {}, not as {}", model_class, names.front()));
  }
  return remarks;
}

}  // namespace shardplan
