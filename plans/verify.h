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
/// bytes are written before they are read, and by their own buffer; each gradient is reduced
/// exactly once and each parameter updated exactly once per step; arena offsets lie inside the
/// arena; operands fit their buffers and their kernels; waits name issued instructions.
std::vector<Fault> verify(const Plan& plan);

}  // namespace shardplan
