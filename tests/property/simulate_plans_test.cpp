#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "planner/planner.h"
#include "simulator/simulate.h"
#include "tests/models/tiny_models.h"
#include "tests/property/random_plan.h"

namespace shardplan {
namespace {

const CostConstants kCosts{.matmul_efficiency = 0.8,
                           .attention = {.flash2 = 0.5},
                           .memory_efficiency = 0.8,
                           .kernel_latency_s = 1e-6,
                           .collective_latency_s = 1e-5,
                           .collective_protocols = {{.name = "ring", .rate_share = 0.8}}};

/// A plan that trains, on a cluster whose links and rates are of any proportion.
Plan any_training_plan() {
  const int gpus_per_node = *rc::gen::inRange(1, 5);
  const int nodes = *rc::gen::inRange(1, 4);
  Job job = testing::random_plan_job(gpus_per_node, nodes);
  job.strategy.sharding = *rc::gen::element(Strategy::FullShard, Strategy::ShardGradOp,
                                            Strategy::NoShard, Strategy::Ddp);
  job.strategy.forward_prefetch = *rc::gen::inRange(0, 3);
  job.strategy.limit_all_gathers = *rc::gen::arbitrary<bool>();
  job.training.micro_batch = *rc::gen::inRange(1, 4);
  job.training.sequence_length = *rc::gen::inRange(1, 33);
  job.training.clip_grad_norm = 1.0;
  job.cluster.gpu.matmul_flops_fp32 = *rc::gen::element(1e8, 1e10, 1e12);
  job.cluster.network.intra_node_bytes_per_s = *rc::gen::element(1e6, 1e8, 1e10);
  return make_plan(job, testing::tiny_llama({.layers = *rc::gen::inRange(1, 4)}));
}

Seconds step_of(const Plan& plan) { return simulate(plan, kCosts).time.value().step_s; }

RC_GTEST_PROP(SimulatedTraining, FasterLinksNeverMakeAStepSlower, ()) {
  const Plan slower = any_training_plan();
  Plan faster = slower;
  faster.job.cluster.network.intra_node_bytes_per_s *= *rc::gen::inRange(1, 20);
  faster.job.cluster.network.inter_node_bytes_per_s *= *rc::gen::inRange(1, 20);
  RC_ASSERT(step_of(faster) <= step_of(slower) * (1 + 1e-9));
}

RC_GTEST_PROP(SimulatedTraining, AFasterGpuNeverMakesAStepSlower, ()) {
  const Plan slower = any_training_plan();
  Plan faster = slower;
  faster.job.cluster.gpu.memory_bandwidth_bytes_per_s *= *rc::gen::inRange(1, 20);
  faster.job.cluster.gpu.matmul_flops_fp32 *= *rc::gen::inRange(1, 20);
  RC_ASSERT(step_of(faster) <= step_of(slower) * (1 + 1e-9));
}

RC_GTEST_PROP(SimulatedTraining, CategoriesAtThePeakAreTheIssueOrderBytes, ()) {
  const Plan plan = any_training_plan();
  const RankMemory memory = simulate(plan, kCosts).ranks.front().memory;
  Bytes sum = 0;
  for (const auto& bytes : memory.at_peak)
    sum += bytes.value();
  RC_ASSERT(sum == plan.arena.issue_order_bytes);
  RC_ASSERT(memory.peak_allocated_bytes >= plan.arena.issue_order_bytes);
}

RC_GTEST_PROP(SimulatedTraining, ACollectiveForEveryGroupThatIsNotAlone, ()) {
  const Plan plan = any_training_plan();
  const Report report = simulate(plan, kCosts);
  RC_ASSERT(report.collectives.empty() == (plan.world_size() == 1));
  RC_ASSERT((report.bytes_sent_per_rank == 0) == (plan.world_size() == 1));
}

}  // namespace
}  // namespace shardplan
