#pragma once

#include "plans/job.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan {

/// The plan of a job: autograd, wrap, layout, schedule, synchronise, arena, in that order; for
/// PyTorch's engines what their host issues, in place of schedule and arena.
/// Throws InputError for what is wrong or not supported yet.
Plan make_plan(const Job& job);

/// The same for a graph that is already built.
Plan make_plan(const Job& job, const ModelGraph& graph);

namespace torch {
struct Setup;
}
/// The same for a PyTorch process that differs from transformers' on the job's GPUs: see
/// planner/torch/torch_plan.h.
Plan make_plan(const Job& job, const ModelGraph& graph, const torch::Setup& setup);

}  // namespace shardplan
