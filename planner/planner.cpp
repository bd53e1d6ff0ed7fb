#include "planner/planner.h"

#include <fmt/format.h>

#include "planner/model.h"
#include "planner/passes/arena.h"
#include "planner/passes/autograd.h"
#include "planner/passes/layout.h"
#include "planner/passes/schedule.h"
#include "planner/passes/synchronise.h"
#include "planner/passes/wrap.h"
#include "plans/error.h"

namespace shardplan {
namespace {

Mesh mesh_of(const Job& job) {
  switch (job.strategy.sharding) {
    case Strategy::FullShard:
    case Strategy::ShardGradOp: return {.replicate = 1, .shard = job.world_size()};
    case Strategy::NoShard:
    case Strategy::Ddp: return {.replicate = job.world_size(), .shard = 1};
    default: break;
  }
  throw InputError(
      fmt::format("strategy.sharding: {} is not supported yet; supported: FULL_SHARD, "
                  "SHARD_GRAD_OP, NO_SHARD, DDP",
                  to_string(job.strategy.sharding)));
}

/// The device's own kernels, unless the job names others.
Profile profile_of(const Job& job) {
  if (job.strategy.profile) return *job.strategy.profile;
  return job.cluster.gpu.is_cpu() ? Profile::CpuOneDnn : Profile::Cuda;
}

/// Learned positions end somewhere; beyond them there is nothing to read.
void check_positions(const ModelGraph& graph, Sizes sizes) {
  const std::optional<std::int64_t> most = graph.most_positions();
  if (most && sizes.time > *most)
    throw InputError(
        fmt::format("training.sequence_length: {} is more than the {} positions that the model "
                    "learns",
                    sizes.time, *most));
}

/// Floating-point operations of one micro-batch, forward and backward.
double model_flops(const Tape& tape) {
  double flops = 0;
  for (const auto* launches : {&tape.forward, &tape.backward})
    for (const TapeLaunch& launch : *launches)
      flops += flops_of(launch.kernel, launch.attributes);
  return flops;
}

}  // namespace

Plan make_plan(const Job& job) { return make_plan(job, build_model(job.model)); }

Plan make_plan(const Job& job, const ModelGraph& graph) {
  const Sizes sizes = job.training.sizes();
  check_positions(graph, sizes);
  Plan plan;
  plan.job = job;
  plan.profile = profile_of(job);
  plan.mesh = mesh_of(job);
  plan.parameter_count = graph.parameter_count();
  plan.buffers_bytes = graph.buffers_bytes;
  const Tape tape = autograd(graph, sizes, plan.profile);
  plan.model_flops_per_token = model_flops(tape) / static_cast<double>(sizes.batch * sizes.time);
  const std::vector<ParameterPlace> places = lay_out(plan, graph, wrap(graph, tape, job));
  schedule(plan, graph, tape, places);
  add_data_waits(plan);
  pack_arena(plan);
  add_arena_waits(plan);
  return plan;
}

}  // namespace shardplan
