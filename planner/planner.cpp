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

[[noreturn]] void fail_unsupported(std::string_view what, std::string_view supported) {
  throw InputError(fmt::format("{} is not supported yet; supported: {}", what, supported));
}

/// What a job may ask for and no pass plans yet.
void refuse_unplanned(const Job& job) {
  if (job.model.trainable) fail_unsupported("model.trainable", "null");
  if (job.model.lora) fail_unsupported("model.lora", "null");
  if (job.strategy.layout == Layout::PerParameter)
    fail_unsupported("strategy.layout: per_parameter", "flat");
  if (job.strategy.mixed_precision) fail_unsupported("strategy.mixed_precision", "null");
  if (job.strategy.reshard_after_forward)
    fail_unsupported("strategy.reshard_after_forward", "null");
  const TrainingJob& training = job.training;
  if (training.gradient_accumulation.steps > 1)
    fail_unsupported("training.gradient_accumulation.steps", "1");
  if (training.activation_checkpointing.kind != ActivationCheckpointing::Kind::None)
    fail_unsupported("training.activation_checkpointing", "none");
  if (training.loss_chunks > 1) fail_unsupported("training.loss.chunks", "1");
  if (training.optimizer.decay != OptimizerJob::Decay::All)
    fail_unsupported("training.optimizer.decay", "all");
}

Mesh mesh_of(const Job& job) {
  switch (job.strategy.sharding) {
    case Strategy::FullShard:
    case Strategy::ShardGradOp: return {.replicate = 1, .shard = job.world_size()};
    case Strategy::NoShard:
    case Strategy::Ddp: return {.replicate = job.world_size(), .shard = 1};
    default: break;
  }
  fail_unsupported(fmt::format("strategy.sharding: {}", to_string(job.strategy.sharding)),
                   "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, DDP");
}

/// The device's own kernels, unless the job names others.
Profile profile_of(const Job& job) {
  if (job.strategy.profile) return *job.strategy.profile;
  return job.cluster.gpu.is_cpu() ? Profile::CpuOneDnn : Profile::Cuda;
}

/// Learned positions end somewhere; beyond them there is nothing to read.
void check_positions(const ModelGraph& graph, Sizes sizes) {
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag))) {
    const Operator& op = graph.dag[vertex];
    const std::int64_t positions = op.attributes.integer(Attribute::InFeatures);
    if (op.kind == OperatorKind::PositionEmbedding && sizes.time > positions)
      throw InputError(
          fmt::format("training.sequence_length: {} is more than the {} positions that {} learns",
                      sizes.time, positions, op.module));
  }
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
  refuse_unplanned(job);
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
