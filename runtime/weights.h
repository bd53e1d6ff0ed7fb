#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plans/plan.h"
#include "runtime/checkpoint.h"
#include "runtime/safetensors.h"
#include "runtime/safetensors_writer.h"
#include "runtime/unit_layout.h"

namespace shardplan {

/// Where a job's parameters come from: a checkpoint, else the safetensors of job.run.weights, else
/// the seed.
class WeightSource {
 public:
  /// Looks up every parameter of the plan's units. Throws InputError naming the first that is
  /// missing (adapters may be: they come from the seed) or has another shape; tensors that the plan
  /// does not know are not looked at. `checkpoint`: null, or one with the plan's state.
  explicit WeightSource(const Plan& plan, const Checkpoint* checkpoint = nullptr);

  /// Fills `out` with pieces of the unit's parameters; the padding between them is 0.
  void read(const Unit& unit, const std::vector<Piece>& pieces, std::span<float> out) const;

 private:
  const SafeTensor* find(const std::string& name) const;
  void expect_tensor(const UnitParameter& parameter) const;

  const std::uint64_t seed_;
  const Checkpoint* const checkpoint_;
  std::optional<SafeTensors> tensors_;
};

/// Where they go: job.run.output/model.safetensors.
class WeightSink {
 public:
  /// Throws SystemError when the file cannot be made.
  explicit WeightSink(const Plan& plan,
                      SafetensorsWriter::Open open = SafetensorsWriter::Open::Create);

  /// The pieces of the unit's parameters that `values` holds.
  void write(const Unit& unit, const std::vector<Piece>& pieces, std::span<const float> values);
  /// See SafetensorsWriter.
  void commit() { writer_.commit(); }

 private:
  SafetensorsWriter writer_;
};

}  // namespace shardplan
