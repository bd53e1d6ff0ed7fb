#pragma once

#include <vector>

#include "planner/passes/autograd.h"
#include "planner/passes/emitter.h"
#include "planner/passes/gathers.h"
#include "planner/passes/layout.h"
#include "plans/plan.h"

namespace shardplan {

/// Dtype of whole parameters while they are used.
Dtype parameter_dtype(const Job& job);
/// Dtype in which gradients are reduced.
Dtype reduce_dtype(const Job& job);

/// The whole parameters that launches of a micro-step read: cast to the dtype that the job computes
/// in and gathered from the shards, as far as either is needed. With ZERO_1 and ZERO_2 that is once
/// a step, and all micro-steps read the same.
class WholeParameters {
 public:
  WholeParameters(Emitter& emitter, const Tape& tape, const std::vector<ParameterPlace>& places);

  /// Whether parameters are gathered ahead of a step's micro-steps, and not in each.
  bool gathers_once() const;
  /// Emits the gathers of a step, of all units in the order of first use.
  void gather_for_step();

  void begin_micro_step();
  /// Emits the gathers that come before this launch. `launch_ids`: instructions of earlier
  /// launches.
  void before_launch(int launch, const std::vector<InstructionId>& launch_ids);
  /// Emits what becomes of parameters that this launch is the last to use for now.
  void after_launch(int launch);
  /// Where `launch` finds the parameter at `place`.
  View view(const ParameterPlace& place, int launch) const;

 private:
  const Plan& plan() const { return emitter_.plan(); }
  BufferId source(const Gather& gather, const std::string& suffix);
  BufferId gathered(const Gather& gather, const std::string& suffix, BufferId from, Group group);
  void emit_gather(std::size_t index, const std::vector<InstructionId>& launch_ids);
  void keep_span(const Gather& gather, BufferId whole);

  Emitter& emitter_;
  std::vector<Gather> gathers_;     // empty: launches read the resident parameters
  std::vector<BufferId> gathered_;  // by gather, of this micro-step; once a step: of the step
  std::vector<BufferId> spans_;     // by unit: what is kept from forward to backward; -1: nothing
  std::size_t next_ = 0;
};

/// Pairs of operands of a collective over shards: the stretch of `shards` that belongs to each
/// slice of the unit, and that of `whole`. Only slices inside whole elements [0, elems).
struct SliceViews {
  std::vector<View> shards;
  std::vector<View> whole;
};
SliceViews slice_views(const Unit& unit, BufferId shards, BufferId whole, std::int64_t parts,
                       std::int64_t elems);

}  // namespace shardplan
