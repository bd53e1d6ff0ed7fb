#pragma once

#include <vector>

#include "planner/passes/wrap.h"
#include "planner/torch/setup.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan::torch {

/// Plans a job as PyTorch's engine executes it in eager mode: what its host issues, in its order,
/// with every allocation and free. `plan` has job, profile, mesh and units, those of `groups`. The
/// waits that its data needs are synchronise()'s. Throws InputError for what is not modelled.
void schedule(Plan& plan, const ModelGraph& model, const std::vector<ParameterGroup>& groups,
              const Setup& setup);

}  // namespace shardplan::torch
