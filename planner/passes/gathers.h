#pragma once

#include <vector>

#include "planner/passes/autograd.h"
#include "planner/passes/layout.h"
#include "plans/plan.h"

namespace shardplan {

/// One all-gather of a unit's parameters and the launches that need it. Launches are counted over
/// forward and backward together.
struct Gather {
  int unit = -1;
  Phase phase = Phase::Forward;
  int first_use = 0;
  int last_use = 0;
  int issue = 0;      // issued before this launch
  int throttle = -1;  // launch to wait for, so that few units are unsharded at a time; -1: none
};

/// Whether a unit's whole parameters stay from forward to backward: always but with FULL_SHARD,
/// ZERO_3 and HYBRID_SHARD, and there for the root; reshard_after_forward overrules both.
bool keeps_parameters(const Plan& plan, int unit);

/// Gathers in issue order. A unit that does not keep its parameters is gathered once for forward
/// and once for backward; otherwise a gathered unit stays until its last use. At most one unit
/// beyond the one in use is gathered ahead (more with forward_prefetch; in backward one with
/// BACKWARD_PRE, with BACKWARD_POST once the one in use is computed, else none), and with
/// limit_all_gathers the next gather waits until the one before those is no longer needed.
std::vector<Gather> plan_gathers(const Plan& plan, const Tape& tape,
                                 const std::vector<ParameterPlace>& places);

}  // namespace shardplan
