#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/torch/torch_plan.h"

namespace shardplan {

/// What a framework sets from a date on, complete. Settings are those of --set.
struct FrameworkVersion {
  std::string since;  // "2025-04"; empty: ever
  std::vector<std::string> settings;
  std::vector<std::string> compiled;  // in addition, with it
  torch::Setup process;               // where PyTorch's loss is computed, and how
  std::vector<std::string> units;     // of FSDP, beside the blocks
};

/// How a framework of published measurements trains where a row does not say it: an entry of
/// plans/frameworks.yaml.
struct Framework {
  std::vector<std::string> names;          // parts of what rows call it
  std::vector<FrameworkVersion> versions;  // the first is of ever, later ones follow
  std::string undated;                     // what rows without a date are of
  int global_batch = 0;                    // sequences of a step; 0: not known
  std::string selective;         // value of training.activation_checkpointing; empty: not known
  std::string selective_float8;  // the same with products in 8 bits; empty: as without
  std::string checkpointing;     // its usual mode; empty: not known
  // What its names for parts of a block that are computed again mean: "ffn" is module "mlp".
  std::map<std::string, std::string> recomputed_operators;
  std::map<std::string, std::string> recomputed_modules;

  /// What it was at a date ("2025-02-05"); empty: not known.
  const FrameworkVersion& at(std::string_view date) const;
};

/// The entries below `folder` (see data_folder()). Throws InputError.
std::vector<Framework> read_frameworks(const std::string& folder);

/// The first that `name` means; nullptr when none does.
const Framework* find_framework(const std::vector<Framework>& frameworks, std::string_view name);

}  // namespace shardplan
