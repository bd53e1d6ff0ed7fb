#pragma once

#include <cstddef>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

/// Memory of a rank of `rank_class`. With an arena all classes need the same, as buffers are padded
/// to one size: the peak is that of the arena, and what is alive at it and in each phase follows
/// issue order. With an allocator both peaks are those of its model, and phases are those of a
/// steady step, in allocated bytes.
RankMemory rank_memory(const Plan& plan, const CostConstants& costs, std::size_t rank_class = 0);

}  // namespace shardplan
