#pragma once

#include <vector>

#include "planner/passes/wrap.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan::torch {

/// What of a PyTorch process no job says.
struct Setup {
  bool fake_cpu = false;     // FakeTensorMode on a CPU mesh, which reference figures come from
  bool holds_logits = true;  // while the loss is computed of a float32 copy, as transformers does
};

/// Plans a job as PyTorch's engine executes it in eager mode: what its host issues, in its order,
/// with every allocation and free. `plan` has job, profile, mesh and units, those of `groups`. The
/// waits that its data needs are synchronise()'s. Throws InputError for what is not modelled.
void schedule(Plan& plan, const ModelGraph& model, const std::vector<ParameterGroup>& groups,
              const Setup& setup);

}  // namespace shardplan::torch
