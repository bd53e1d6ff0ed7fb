#pragma once

#include "plans/plan.h"

namespace shardplan {

/// Adds the fewest `data` waits that order every pair of instructions on different streams that
/// touch the same elements of a buffer, one of them writing; loops are followed over their back
/// edge. `throttle` waits are not relied upon: they may go without changing a value.
void add_data_waits(Plan& plan);

/// Once the arena is packed: replaces all waits by the fewest that order every pair that touches
/// common bytes, `data` where both mean the same buffer, `reuse` where one takes the bytes of
/// another over. `throttle` waits go: what they limit, the memory, is fixed from here on, and
/// beyond it they would only hold work back.
void add_arena_waits(Plan& plan);

}  // namespace shardplan
