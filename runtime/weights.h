#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "plans/plan.h"
#include "runtime/safetensors.h"
#include "runtime/safetensors_writer.h"

namespace shardplan {

/// Where a job's parameters come from: the safetensors of job.run.weights, or the seed.
class WeightSource {
 public:
  /// Looks up every parameter of the plan's units. Throws InputError naming the first that is
  /// missing or has another shape; tensors that the plan does not know are not looked at.
  explicit WeightSource(const Plan& plan);

  /// Elements [begin, begin + out.size()) of the unit's flat parameter; the padding is 0.
  void read(const Unit& unit, std::int64_t begin, std::span<float> out) const;

 private:
  const SafeTensor* find(const std::string& name) const;
  void expect_tensor(const UnitParameter& parameter) const;

  const std::uint64_t seed_;
  std::optional<SafeTensors> tensors_;
};

/// Where they go: job.run.output/model.safetensors.
class WeightSink {
 public:
  /// Throws SystemError when the file cannot be made.
  explicit WeightSink(const Plan& plan);

  /// The parameters inside [begin, begin + values.size()) of the unit's flat parameter.
  void write(const Unit& unit, std::int64_t begin, std::span<const float> values);
  /// Once all is written: gives the file its name.
  void commit() { writer_.commit(); }

 private:
  SafetensorsWriter writer_;
};

}  // namespace shardplan
