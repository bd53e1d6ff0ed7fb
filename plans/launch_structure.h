#pragma once

#include <vector>

#include "plans/plan.h"
#include "plans/verify.h"

namespace shardplan {

/// Appends what makes the operands of a launch unfit for its kernel: their number, sizes, dtypes,
/// attributes. All views must lie inside their buffers.
void check_launch(const Plan& plan, const Instruction& instruction, std::vector<Fault>& faults);

}  // namespace shardplan
