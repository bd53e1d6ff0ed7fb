#pragma once

#include <optional>
#include <string>

#include "planner/import/imported.h"
#include "plans/document.h"

namespace shardplan::importing {

/// accelerate's mixed_precision.
struct AcceleratePrecision {
  std::optional<Dtype> dtype;  // null: "no"
  std::string text;            // "bf16", "fp16 with loss scaling", ...
};

/// fsdp_config of an accelerate file (a null node when absent), for an `imported` whose world is
/// known. `shard_group_of_parallelism`: dp_shard_size of parallelism_config; 0: not given.
void read_accelerate_fsdp(const Node& section, AcceleratePrecision precision,
                          int shard_group_of_parallelism, Imported& imported);

/// deepspeed_config of an accelerate file; `precision_where` is the place of mixed_precision, empty
/// when the file has none.
void read_accelerate_deepspeed(const Node& section, const AcceleratePrecision& precision,
                               const std::string& precision_where, const std::string& source,
                               const ImportOptions& options, Imported& imported);

}  // namespace shardplan::importing
