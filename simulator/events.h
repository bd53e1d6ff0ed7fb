#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/units.h"

namespace shardplan {

/// What an instruction costs, whenever it is issued.
struct InstructionCost {
  Seconds seconds = 0;
  std::int64_t ranks = 1;  // that take part
  Bytes sent = 0;          // by each of them
  Seconds host_s = 0;      // that the issuing thread spends on it
  Seconds compute_s = 0;   // that the compute stream loses to it

  bool on_link() const { return ranks > 1; }
};

/// Costs of all instructions of the plan, by id, on the cluster of its job.
std::vector<InstructionCost> instruction_costs(const Plan& plan, const CostConstants& costs);

/// Instructions in issue order, with a few passes of the loop over training steps. A plan without
/// that loop counts as one step.
struct IssueOrder {
  std::vector<InstructionId> ids;
  std::vector<std::size_t> step_ends;  // position after the last instruction of each step

  std::span<const InstructionId> step(std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : step_ends[index - 1];
    return std::span(ids).subspan(begin, step_ends[index] - begin);
  }
};
constexpr std::int64_t kAllPasses = std::numeric_limits<std::int64_t>::max();
/// What comes before the loop belongs to the first step, what comes after it is left out; loops
/// inside a step run as often as they say, and at most `most_passes` times.
IssueOrder issue_order(const Plan& plan, int steps, std::int64_t most_passes = kAllPasses);

struct Interval {
  Seconds begin_s = 0;
  Seconds end_s = 0;
};

/// When each position of the issue order runs. Discrete events: an instruction begins when its
/// stream has finished the one before, the instructions it waits for have finished, and the issuing
/// thread, which takes its time for each and blocks in a host_wait, has issued it. Collectives take
/// the link one after another in issue order, whatever their streams: that is how a library runs
/// those of one communicator, and several communicators would only share the same rate. What one
/// takes of the device's compute delays the compute stream as a whole, ahead of what is issued
/// next: that is hidden where that stream waits for the collective anyway. Every begin is then a
/// maximum of sums of costs: no cost that shrinks can make anything later.
std::vector<Interval> run_events(const Plan& plan, std::span<const InstructionCost> costs,
                                 const IssueOrder& order);

}  // namespace shardplan
