#pragma once

#include "planner/passes/emitter.h"
#include "planner/passes/gradient_path.h"
#include "planner/passes/model_state.h"
#include "plans/plan.h"

namespace shardplan {

/// Emits what ends a step: reports the mean loss, norm and clip coefficient of the gradients, and
/// the update of every unit's trained parameters.
void emit_optimizer_step(Emitter& emitter, const GradientPath& gradients, const ModelState& state,
                         BufferId loss);

/// The update of parameters that decay by `weight_decay`.
Compute optimizer_kernel(const OptimizerJob& optimizer, double weight_decay);

/// Names of the values that its kernels take from step to step: Plan::scalars.
std::vector<std::string> optimizer_scalars(const OptimizerJob& optimizer);

}  // namespace shardplan
