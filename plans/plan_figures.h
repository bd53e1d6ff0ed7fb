#pragma once

#include <vector>

#include "plans/plan.h"
#include "plans/verify.h"

namespace shardplan {

/// Appends figures that a plan states and that do not follow from what it holds: the size of its
/// arena, the largest sum in issue order, the number of parameters. Sizes and places must be right.
void check_figures(const Plan& plan, std::vector<Fault>& faults);

}  // namespace shardplan
