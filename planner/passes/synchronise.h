#pragma once

#include "plans/plan.h"

namespace shardplan {

/// Adds the fewest `data` waits that order every pair of instructions on different streams that
/// touch the same elements of a buffer, one of them writing; loops are followed over their back
/// edge. `throttle` waits are not relied upon: they may go without changing a value.
void add_data_waits(Plan& plan);

/// The same for buffers that share bytes of the arena: adds the `reuse` waits that streams and data
/// waits do not already imply. `throttle` waits go: what they limit, the memory, is fixed from here
/// on, and beyond it they would only hold work back.
void add_reuse_waits(Plan& plan);

}  // namespace shardplan
