#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/import/imported.h"
#include "plans/document.h"

namespace shardplan::importing {

/// What the fp16, bf16, torch_autocast, data_types and communication_data_type keys say together.
struct ZeroPrecision {
  Dtype model = Dtype::Float32;       // parameters that compute sees
  Dtype reduce = Dtype::Float32;      // gradient reductions
  Dtype accumulate = Dtype::Float32;  // gradients between micro-steps
  Dtype master = Dtype::Float32;
  Dtype states = Dtype::Float32;  // Adam's moments
  std::optional<Dtype> autocast;  // torch_autocast over fp32 parameters
  std::string compute;            // in words: "fp16 with loss scaling (initial 2^16)"
};

/// `document` is the file, `root` the same without what is "auto". Throws InputError.
ZeroPrecision read_zero_precision(const Node& document, Fields& root, Imported& imported);

/// zero_optimization: stage, options and where they make no difference, into the job. Returns the
/// stage. Throws InputError.
int read_zero_optimization(Fields& root, Imported& imported);

/// optimizer, scheduler and gradient_clipping, into the job. Throws InputError.
void read_zero_training(const Node& document, Fields& root, Imported& imported);

}  // namespace shardplan::importing
