#pragma once

#include <vector>

#include "planner/passes/autograd.h"
#include "planner/passes/layout.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan {

/// Emits buffers, instructions, segments and program of the native engine: gathers in the order of
/// first use with prefetch and rate limit, reductions as soon as a unit's gradients are complete,
/// clipping, optimizer. The only waits it sets are `throttle`; the order that data needs is
/// synchronise()'s.
void schedule(Plan& plan, const ModelGraph& graph, const Tape& tape,
              const std::vector<ParameterPlace>& places);

}  // namespace shardplan
