#pragma once

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

/// Memory of any rank of the plan: buffers are padded to one size, so all rank classes need the
/// same. The peak is that of one arena with fixed places; what is alive at it and in each phase
/// follows issue order.
RankMemory rank_memory(const Plan& plan, const CostConstants& costs);

}  // namespace shardplan
