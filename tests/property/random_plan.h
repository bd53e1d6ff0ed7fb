#pragma once

#include "plans/plan.h"

namespace shardplan::testing {

/// A job as a file would give it, for `nodes` nodes of `gpus_per_node` GPUs with round rates.
Job random_plan_job(int gpus_per_node, int nodes);

/// Any plan that its text form can hold: names resolve and sizes are in range, but nothing says
/// that it computes anything. Draws from rapidcheck, so call it inside of a property.
Plan random_plan();

}  // namespace shardplan::testing
