#include "planner/planner.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "planner/model.h"
#include "planner/passes/arena.h"
#include "planner/passes/autograd.h"
#include "planner/passes/layout.h"
#include "planner/passes/narrow_products.h"
#include "planner/passes/schedule.h"
#include "planner/passes/synchronise.h"
#include "planner/passes/whole_parameters.h"
#include "planner/passes/wrap.h"
#include "planner/strategies.h"
#include "planner/torch/torch_plan.h"
#include "planner/unsupported.h"
#include "plans/error.h"

namespace shardplan {
namespace {

/// The divisor of `whole` that is nearest to `wanted`; the smaller of two.
std::int64_t nearest_divisor(std::int64_t whole, std::int64_t wanted) {
  std::int64_t nearest = 1;
  for (std::int64_t divisor = 1; divisor <= whole; ++divisor)
    if (whole % divisor == 0 && std::abs(divisor - wanted) < std::abs(nearest - wanted))
      nearest = divisor;
  return nearest;
}

/// Ranks of a shard group of HYBRID_*. Throws InputError when they do not make up the world.
std::int64_t hybrid_group(const Job& job) {
  const int group = job.strategy.shard_group.value_or(job.cluster.gpus_per_node);
  if (job.world_size() % group != 0)
    throw FieldError(
        "strategy.shard_group",
        fmt::format("{} ranks do not divide the world of {}; the nearest "
                    "that does is {}",
                    group, job.world_size(), nearest_divisor(job.world_size(), group)));
  return group;
}

Mesh mesh_of(const Job& job) {
  const PlannedStrategy::Mesh kind = planned(job.strategy.sharding).mesh;
  const std::int64_t world = job.world_size();
  const std::int64_t group = kind == PlannedStrategy::Mesh::Replicated ? 1
                             : kind == PlannedStrategy::Mesh::Sharded  ? world
                                                                       : hybrid_group(job);
  return {.replicate = world / group, .shard = group};
}

/// Neighbours that share a unit's parameters between forward and backward; 1: as `sharding` says.
std::int64_t span_of(const Job& job, std::int64_t group) {
  const auto& reshard = job.strategy.reshard_after_forward;
  if (!reshard) return 1;
  const Strategy sharding = job.strategy.sharding;
  if (sharding != Strategy::FullShard && sharding != Strategy::HybridShard)
    throw FieldError("strategy.reshard_after_forward",
                     fmt::format("{} says it already; expected null, or sharding "
                                 "FULL_SHARD or HYBRID_SHARD",
                                 to_string(sharding)));
  if (reshard->ranks == 0) return 1;
  if (reshard->ranks >= group || group % reshard->ranks != 0)
    throw FieldError("strategy.reshard_after_forward",
                     fmt::format("{} ranks do not divide the shard group of {}; "
                                 "expected true, false or a divisor between them",
                                 reshard->ranks, group));
  return reshard->ranks;
}

/// The device's own kernels, unless the job names others.
Profile profile_of(const Job& job) {
  if (job.strategy.profile) return *job.strategy.profile;
  if (job.strategy.engine.value_or(Engine::Native) != Engine::Native) return Profile::TorchEager;
  return job.cluster.gpu.is_cpu() ? Profile::CpuOneDnn : Profile::Cuda;
}

/// Learned positions end somewhere; beyond them there is nothing to read.
void check_positions(const ModelGraph& graph, Sizes sizes) {
  const std::optional<std::int64_t> most = graph.most_positions();
  if (most && sizes.time > *most)
    throw FieldError("training.sequence_length",
                     fmt::format("{} is more than the {} positions that the model "
                                 "learns",
                                 sizes.time, *most));
}

/// Floating-point operations of one micro-batch, forward and backward, without recomputation.
double model_flops(const Tape& tape) {
  double flops = 0;
  for (const auto* launches : {&tape.forward, &tape.backward})
    for (const TapeLaunch& launch : *launches)
      if (!launch.recomputation) flops += flops_of(launch.kernel, launch.attributes);
  return flops;
}

Plan plan_of(const Job& job, const ModelGraph& graph, const torch::Setup& setup) {
  refuse_unplanned(job);
  const Sizes sizes = job.training.sizes();
  check_positions(graph, sizes);
  Plan plan;
  plan.job = job;
  plan.profile = profile_of(job);
  plan.mesh = mesh_of(job);
  plan.mesh.span = span_of(job, plan.mesh.shard);
  plan.parameter_count = graph.parameter_count();
  plan.buffers_bytes = graph.buffers_bytes;
  plan.remarks = graph.remarks;
  const Tape tape = autograd(graph, {.sizes = sizes,
                                     .profile = plan.profile,
                                     .dtype = parameter_dtype(job),
                                     .loss_scale = 1.0 / job.training.gradient_accumulation.steps,
                                     .loss_chunks = job.training.loss_chunks,
                                     .checkpointing = job.training.activation_checkpointing});
  plan.model_flops_per_token = model_flops(tape) / static_cast<double>(sizes.batch * sizes.time);
  const std::vector<ParameterGroup> groups = wrap(graph, tape, job);
  const std::vector<ParameterPlace> places = lay_out(plan, graph, groups);
  if (plan.units.size() == 1 && plan.mesh.shard > 1 && !is_zero(job.strategy.sharding))
    plan.remarks.emplace_back(
        "one unit: the whole model is gathered at once; strategy.wrap makes more of it");
  if (is_torch(plan.profile)) {
    torch::schedule(plan, graph, groups, setup);
    add_data_waits(plan);
    return plan;
  }
  schedule(plan, graph, tape, places);
  add_data_waits(plan);
  pack_arena(plan);
  add_arena_waits(plan);
  return plan;
}

}  // namespace

Plan make_plan(const Job& job) {
  return make_plan(job, located(job.places, [&] { return build_model(job.model); }));
}

Plan make_plan(const Job& job, const ModelGraph& graph) {
  return make_plan(job, graph, torch::Setup{});
}

Plan make_plan(const Job& job, const ModelGraph& graph, const torch::Setup& setup) {
  return located(job.places, [&] {
    if (job.training.matmul_dtype == MatmulDtype::None) return plan_of(job, graph, setup);
    return plan_of(job, with_narrow_products(graph, job), setup);
  });
}

}  // namespace shardplan
