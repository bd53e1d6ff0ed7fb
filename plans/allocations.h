#pragma once

#include <vector>

#include "plans/plan.h"
#include "plans/verify.h"

namespace shardplan {

/// For plans whose buffers come and go: appends a fault where one is allocated while it is there,
/// freed or used while it is not, or would pile up in a loop; and where a step does not reduce the
/// gradients of a unit once for every micro-step that reduces.
void check_allocations(const Plan& plan, std::vector<Fault>& faults);

}  // namespace shardplan
