#pragma once

#include <vector>

#include "plans/plan.h"
#include "plans/verify.h"

namespace shardplan {

/// Appends where operands of one instruction share bytes that it writes, and may not: two that are
/// written never do; one that is read is written only as the very same view, by a kernel or
/// collective that works in place or adds up. `addresses` are those of arena_addresses().
void check_aliasing(const Plan& plan, const std::vector<Bytes>& addresses,
                    const Instruction& instruction, std::vector<Fault>& faults);

}  // namespace shardplan
