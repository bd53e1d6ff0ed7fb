#pragma once

#include "plans/plan.h"

namespace shardplan {

/// Whether fuzz_plan executes the plan: a fuzzer wants many inputs a second.
bool is_small(const Plan& plan);

}  // namespace shardplan
