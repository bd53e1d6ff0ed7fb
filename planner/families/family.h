#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plans/document.h"
#include "plans/model_graph.h"

namespace shardplan {

/// What a family's builder reads: the fields of a config.json, and what a job says instead.
struct ModelConfig {
  Fields fields;
  std::optional<bool> tie_word_embeddings;
  std::optional<int> layers;  // blocks
};

/// Models of one config.json `model_type`. To add a family: its builder in a file of this folder,
/// declared below, and a row in families().
struct Family {
  std::string_view model_type;   // "llama"
  std::string_view model_class;  // "LlamaForCausalLM", what transformers makes of the type
  /// Builds the graph. Throws InputError for a config that makes no sense or is not supported yet.
  ModelGraph (*build)(ModelConfig& config);
};
std::span<const Family> families();

ModelGraph build_llama(ModelConfig& config);
ModelGraph build_mistral(ModelConfig& config);
ModelGraph build_qwen2(ModelConfig& config);
ModelGraph build_qwen3(ModelConfig& config);
ModelGraph build_gpt2(ModelConfig& config);

/// The integer at `key` or, when absent, at `alias`. Throws InputError when both are absent.
std::int64_t required_integer(ModelConfig& config, std::string_view key, std::int64_t most,
                              std::string_view alias = {});
/// Number of blocks: the job's, else the config's.
std::int64_t layers_of(ModelConfig& config, std::string_view key, std::string_view alias = {});
/// True when head and embedding share their weight; `by_class` when neither job nor config says.
bool is_tied(ModelConfig& config, bool by_class);
/// Remarks on fields that every family leaves out: dropout, quantisation, another head.
std::vector<std::string> remarks_on(ModelConfig& config, std::span<const std::string_view> dropouts,
                                    std::string_view model_class);

// Largest sizes of a config; far above any model, and small enough that no product overflows.
constexpr std::int64_t kMostLayers = 2'048;
constexpr std::int64_t kMostChannels = 1 << 17;
constexpr std::int64_t kMostIntermediate = 1 << 19;
constexpr std::int64_t kMostVocabulary = 1 << 22;
constexpr std::int64_t kMostPositions = 1 << 28;

}  // namespace shardplan
