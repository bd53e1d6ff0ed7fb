#pragma once

#include <string_view>
#include <vector>

#include "planner/passes/emitter.h"
#include "planner/passes/layout.h"
#include "plans/plan.h"

namespace shardplan {

/// The way of every unit's gradients from the kernels that write them to what the optimizer reads:
/// summed over micro-steps and averaged over ranks, in the dtypes that the job asks for. A step is
/// zero(), then begin_micro_step() and wrote() for every micro-step.
class GradientPath {
 public:
  GradientPath(Emitter& emitter, const std::vector<ParameterPlace>& places);

  /// What micro-steps are summed in: the shards that reductions give (`every`), or whole gradients
  /// that are reduced once (`last`, ZERO_1, and where there is nothing to reduce).
  enum class Sum { None, Shards, Whole };
  Sum sum() const { return sum_; }

  /// Zeroes what micro-steps add to; emits nothing when a step is one micro-step.
  void zero();

  enum class Reduce { No, Yes };
  /// `writes`: how many launches of a micro-step write a gradient of each unit.
  void begin_micro_step(std::vector<int> writes, Reduce reduce);
  /// Where backward writes the gradient of a parameter.
  View gradient_of(int parameter) const;
  /// Whether the first write of a micro-step adds to what is there.
  bool adds_up() const { return sum_ == Sum::Whole && written_dtype() == reduce_dtype(); }
  /// `writer` wrote a gradient of the unit; the last one of a micro-step starts what follows.
  void wrote(int unit, InstructionId writer);

  /// The last instruction on the way of this micro-step's gradients; -1: none.
  InstructionId last_finished() const { return finished_.empty() ? -1 : finished_.back(); }

  /// The gradients that the optimizer reads, by unit; -1: nothing in the unit is trained.
  const std::vector<BufferId>& gradients() const { return gradients_; }

 private:
  const Plan& plan() const { return emitter_.plan(); }
  const Unit& unit(int index) const { return plan().units[index]; }
  bool sharded() const { return plan().mesh.shard > 1; }
  bool reduces() const { return plan().world_size() > 1; }
  Dtype written_dtype() const;
  Dtype reduce_dtype() const;
  bool written_is_temporary() const;
  Stream last_stream() const;

  void finish(int unit);
  void zero_padding(int unit);
  void add(std::string_view name, int unit, Stream stream, BufferId from, BufferId to);
  BufferId cast(int unit, BufferId from);
  BufferId reduce(int unit, BufferId whole);
  void deliver(int unit, BufferId reduced);

  Emitter& emitter_;
  const std::vector<ParameterPlace>& places_;
  Sum sum_ = Sum::None;
  Reduce reduce_ = Reduce::Yes;
  std::vector<BufferId> gradients_;      // by unit
  std::vector<BufferId> sums_;           // by unit: whole gradients summed over micro-steps
  std::vector<BufferId> written_;        // by unit: what the kernels of this micro-step write
  std::vector<int> writes_;              // by unit: of a micro-step
  std::vector<int> writes_left_;         // by unit
  std::vector<InstructionId> finished_;  // the last instruction of each unit done so far
};

}  // namespace shardplan
