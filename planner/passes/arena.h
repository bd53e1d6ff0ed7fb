#pragma once

#include "plans/plan.h"

namespace shardplan {

/// Gives every device buffer a fixed offset in one arena, so that a run needs a single allocation
/// and cannot fragment. Resident buffers form a prefix; two others overlap only where
/// happens-before orders one wholly before the other, in one iteration and across the loop's back
/// edge. Fills Plan::arena.
void pack_arena(Plan& plan);

}  // namespace shardplan
