#pragma once

#include <vector>

#include "plans/verify.h"

namespace shardplan {

/// What is wrong with a plan before its order is looked at: indices out of range, operands outside
/// their buffers, buffers outside the arena, operands that do not fit their kernel or collective.
std::vector<Fault> structure_faults(const Plan& plan);

}  // namespace shardplan
