#pragma once

#include "plans/job.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan {

/// The plan of a job: autograd, wrap, layout, schedule, synchronise, arena, in that order.
/// Throws InputError for what is wrong or not supported yet.
Plan make_plan(const Job& job);

/// The same for a graph that is already built.
Plan make_plan(const Job& job, const ModelGraph& graph);

}  // namespace shardplan
