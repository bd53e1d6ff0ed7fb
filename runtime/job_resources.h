#pragma once

#include <optional>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "runtime/interpreter.h"
#include "runtime/tokens.h"
#include "runtime/weights.h"

namespace shardplan {

/// Files and values that the ranks of this process share, made as the plan needs them.
class JobResources {
 public:
  /// `open`: whether this process makes the files that ranks write together; nothing: none does.
  /// `checkpoint`: to go on from; null: from the beginning. Throws InputError for bad weights or
  /// tokens, SystemError when a file cannot be made.
  JobResources(const Plan& plan, std::optional<SafetensorsWriter::Open> open,
               const Checkpoint* checkpoint);

  JobData data();
  std::vector<StepReport>& steps() { return steps_; }
  /// Once everything is written that this process writes, and, where it has made the files, by all
  /// others too.
  void commit();

 private:
  const Checkpoint* const checkpoint_;
  std::vector<StepScalars> scalars_;  // by step
  std::vector<StepReport> steps_;     // by step
  std::optional<Batches> batches_;
  std::optional<WeightSource> weight_source_;
  std::optional<WeightSink> weight_sink_;
};

}  // namespace shardplan
