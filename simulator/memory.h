#pragma once

#include <vector>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

/// Memory of a rank of each class; one entry at least. With an arena all classes need the same, as
/// buffers are padded to one size: the peak is that of the arena, and what is alive at it and in
/// each phase follows issue order. With an allocator both peaks are those of its model, and phases
/// are those of a steady step, in allocated bytes.
std::vector<RankMemory> rank_memories(const Plan& plan, const CostConstants& costs);

}  // namespace shardplan
