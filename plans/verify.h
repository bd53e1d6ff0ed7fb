#pragma once

#include <string>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// One broken invariant of a plan.
struct Fault {
  std::string instruction;  // name; empty: the plan as a whole
  std::string buffer;       // name; empty: none in particular
  std::string why;
};

/// Proves that every legal interleaving of the plan gives the same bits and none deadlocks, loops
/// unrolled twice; returns every fault found (at most a few per cause), none when the plan is
/// right: instructions that touch common bytes, one of them writing, are ordered by happens-before;
/// bytes are written before they are read, and by their own buffer; backward is the derivative of
/// the forward that ran; each parameter is updated once a step, by a gradient that has one term of
/// every use of it in the step and is averaged over all ranks once; the loss and norm that are
/// reported and the weights that are saved are those of the step; arena offsets lie inside the
/// arena; operands fit their buffers, their kernels and each other; waits name issued instructions.
/// `throttle` waits are not relied upon. docs/verify.md says how.
std::vector<Fault> verify(const Plan& plan);

}  // namespace shardplan
