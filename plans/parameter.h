#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plans/units.h"

namespace shardplan {

/// How a parameter gets its first values when no weights are given.
struct Initializer {
  enum class Kind { Normal, Ones, Zeros } kind = Kind::Normal;
  double standard_deviation = 0.02;

  bool operator==(const Initializer&) const = default;
};

/// A named tensor of the model. Tied weights are one Parameter used by several operators.
struct Parameter {
  std::string name;                 // Hugging Face name, e.g. "model.layers.0.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;  // elements
  Initializer initializer;
  bool trainable = true;
  bool reached = true;  // false: the class has it, but the loss does not depend on it
  std::optional<Dtype> dtype = std::nullopt;  // of adapters; none: the job's model.dtype

  /// Has a gradient and optimizer state.
  bool trains() const { return trainable && reached; }

  std::int64_t elements() const;
};

}  // namespace shardplan
