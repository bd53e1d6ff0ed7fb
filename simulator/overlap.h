#pragma once

#include <span>

#include "simulator/events.h"

namespace shardplan {

/// Time that the intervals cover inside `window`. They must be in order and disjoint.
Seconds covered(std::span<const Interval> intervals, Interval window);

/// Time inside `window` that both cover. Each must be in order and disjoint.
Seconds overlap(std::span<const Interval> a, std::span<const Interval> b, Interval window);

}  // namespace shardplan
