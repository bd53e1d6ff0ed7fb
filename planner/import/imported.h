#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plans/job.h"

namespace shardplan {

/// What a file of another tool does that its author may not expect: a key that is not read, a value
/// that is replaced without a word, a default that is not the usual one.
struct ImportWarning {
  std::string where;  // "acc.yaml:6:3"
  std::string key;    // in the tool's spelling, e.g. "zero_optimization.overlap_comm"
  std::string text;

  bool operator==(const ImportWarning&) const = default;
};

/// A value that the file leaves to the run.
struct OpenValue {
  std::string where;
  std::string key;
  std::string decided_by;  // what sets it, and by which rule

  bool operator==(const OpenValue&) const = default;
};

/// One thing that a file means, in the tool's and FSDP's terms: {"shard_group", 8}. The order of
/// std::variant's alternatives is that of JSON types: null, boolean, integer, number, text.
using FactValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;
struct Fact {
  std::string name;
  FactValue value;

  bool operator==(const Fact&) const = default;
};

/// A file of another tool, understood.
struct Imported {
  std::string tool;  // "accelerate FSDP yaml", "DeepSpeed json", ...
  Job job;           // its model is empty when the file names none
  std::vector<Fact> facts;
  std::vector<ImportWarning> warnings;
  std::vector<OpenValue> open;

  /// Adds a fact, or replaces the one of that name.
  void set(std::string_view name, FactValue value);
  void set(std::string_view name, std::string text) { set(name, FactValue(std::move(text))); }
  void set(std::string_view name, const char* text) { set(name, FactValue(std::string(text))); }
  void set(std::string_view name, std::string_view text) {
    set(name, FactValue(std::string(text)));
  }
  /// The fact of that name; nullptr when there is none.
  const Fact* find(std::string_view name) const;
};

/// What a file of a launcher does not say.
struct ImportOptions {
  const Hardware& hardware;
  std::optional<int> gpus = std::nullopt;  // ranks in all; null: as the file says
  std::optional<int> nodes = std::nullopt;
  std::optional<std::int64_t> hidden_size =
      std::nullopt;  // of the model, which "auto" sizes depend on
};

/// What `accelerate launch --config_file` (1.15.0) makes of a YAML text. A DeepSpeed file that it
/// names is read from beside `source`, else from the working folder. Throws InputError for what
/// accelerate refuses and for what a job cannot say (Megatron-LM, TPUs).
Imported import_accelerate(std::string_view yaml, const std::string& source,
                           const ImportOptions& options);

/// What DeepSpeed (0.19.8) makes of a JSON config; "auto" as the trainer of transformers fills it.
/// Without `options.gpus` the world is the one that the three batch sizes give, else 8. Throws
/// InputError for what DeepSpeed refuses and for what a job cannot say.
Imported import_deepspeed(std::string_view json, const std::string& source,
                          const ImportOptions& options);

/// The model of a job, a Hugging Face config.json: its size as facts, its traps as warnings. Throws
/// InputError.
Imported import_hf(Job job);

/// hidden_size as DeepSpeed's integration in transformers finds it in the model's config.json: at
/// the top, else the largest of hidden_sizes, else the same in text_config. Null: nowhere. Throws
/// InputError.
std::optional<std::int64_t> hidden_size_of(const ModelJob& model);

}  // namespace shardplan
