#pragma once

#include <vector>

#include "planner/passes/buffer_uses.h"
#include "plans/plan.h"

namespace shardplan {

/// The largest total size of device buffers of which no two are wholly ordered by happens-before:
/// no placement of whole buffers can do with less. Exact: the maximum-weight antichain, by
/// Dilworth's theorem as a maximum flow. Requires that all accesses to one buffer are ordered
/// (verify() proves it).
/// `uses` are those of buffer_uses(plan).
Bytes live_bound(const Plan& plan, const std::vector<BufferUse>& uses);

}  // namespace shardplan
