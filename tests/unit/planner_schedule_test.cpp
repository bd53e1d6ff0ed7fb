#include <gtest/gtest.h>

#include <algorithm>

#include "planner/planner.h"
#include "plans/happens_before.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using testing::tiny_job;
using testing::tiny_llama;

template <typename Kind>
int count(const Plan& plan, Phase phase) {
  return static_cast<int>(std::ranges::count_if(plan.instructions, [&](const Instruction& i) {
    return i.phase == phase && std::holds_alternative<Kind>(i.operation);
  }));
}

int find(const Plan& plan, const std::string& name) {
  const auto found = std::ranges::find(plan.instructions, name, &Instruction::name);
  EXPECT_NE(found, plan.instructions.end()) << name;
  return static_cast<int>(found - plan.instructions.begin());
}

Bytes peak_of(const Job& job) { return make_plan(job, tiny_llama({.layers = 6})).arena.bytes; }

// The table of docs/strategies: what each strategy gathers and reduces, and when.
TEST(Schedule, FullShardGathersTwiceAndReducesOnce) {
  const Plan plan = make_plan(tiny_job(Strategy::FullShard, 4), tiny_llama());
  EXPECT_EQ(count<AllGather>(plan, Phase::Forward), 3);   // root and two blocks
  EXPECT_EQ(count<AllGather>(plan, Phase::Backward), 2);  // the root is kept
  EXPECT_EQ(count<ReduceScatter>(plan, Phase::Backward), 3);
}

TEST(Schedule, ShardGradOpGathersOnce) {
  const Plan plan = make_plan(tiny_job(Strategy::ShardGradOp, 4), tiny_llama());
  EXPECT_EQ(count<AllGather>(plan, Phase::Forward), 3);
  EXPECT_EQ(count<AllGather>(plan, Phase::Backward), 0);
  EXPECT_EQ(count<ReduceScatter>(plan, Phase::Backward), 3);
}

TEST(Schedule, NoShardReducesEachUnitInPlace) {
  const Plan plan = make_plan(tiny_job(Strategy::NoShard, 4), tiny_llama());
  EXPECT_EQ(count<AllGather>(plan, Phase::Forward), 0);
  EXPECT_EQ(count<AllReduce>(plan, Phase::Backward), 3);
}

TEST(Schedule, OneRankCommunicatesNothing) {
  for (const Strategy strategy : {Strategy::FullShard, Strategy::ShardGradOp, Strategy::Ddp}) {
    const Plan plan = make_plan(tiny_job(strategy, 1), tiny_llama());
    for (const Instruction& instruction : plan.instructions)
      EXPECT_TRUE(instruction.stream == Stream::Compute ||
                  instruction.stream == Stream::HostToDevice ||
                  instruction.stream == Stream::DeviceToHost)
          << instruction.name;
  }
}

TEST(Schedule, NextUnitIsGatheredWhileTheCurrentOneRuns) {
  const Plan plan = make_plan(tiny_job(Strategy::FullShard, 4), tiny_llama({.layers = 4}));
  const HappensBefore order(plan, unroll(plan, 1));
  // Positions equal ids here: init, one step and save run once each.
  const int gather = find(plan, "all_gather.model.layers.2.forward");
  const int current = find(plan, "model.layers.1.mlp.down_proj.linear");
  const int before = find(plan, "model.layers.0.mlp.down_proj.linear");
  EXPECT_FALSE(order.ordered(current, gather));
  EXPECT_TRUE(order.ordered(before, gather));
}

TEST(Schedule, WithoutTheRateLimitMoreUnitsAreUnshardedAtATime) {
  Job limited = tiny_job(Strategy::FullShard, 4);
  Job unlimited = limited;
  unlimited.strategy.limit_all_gathers = false;
  EXPECT_LT(peak_of(limited), peak_of(unlimited));
}

TEST(Schedule, WithoutBackwardPrefetchNoUnitIsGatheredAheadInBackward) {
  Job job = tiny_job(Strategy::FullShard, 4);
  job.strategy.backward_prefetch = BackwardPrefetch::None;
  const Plan plan = make_plan(job, tiny_llama({.layers = 4}));
  const HappensBefore order(plan, unroll(plan, 1));
  const int gather = find(plan, "all_gather.model.layers.1.backward");
  const int last_use = find(plan, "model.layers.2.input_layernorm.rms_norm_backward");
  EXPECT_TRUE(order.ordered(last_use, gather));
}

TEST(Schedule, ShardedStrategiesNeedLessMemory) {
  const Bytes full = peak_of(tiny_job(Strategy::FullShard, 8));
  const Bytes grad_op = peak_of(tiny_job(Strategy::ShardGradOp, 8));
  const Bytes ddp = peak_of(tiny_job(Strategy::Ddp, 8));
  EXPECT_LT(full, grad_op);
  EXPECT_LT(grad_op, ddp);
}

TEST(Schedule, APlanDoesNotGrowWithTheRanks) {
  const Plan two = make_plan(tiny_job(Strategy::FullShard, 2), tiny_llama());
  const Plan many = make_plan(tiny_job(Strategy::FullShard, 65536), tiny_llama());
  // Padding to a multiple of the ranks may need a fill per unit.
  EXPECT_LE(many.instructions.size(), two.instructions.size() + two.units.size());
}

TEST(Schedule, SgdWithoutMomentumKeepsNoState) {
  Job job = tiny_job(Strategy::Ddp, 2);
  job.training.optimizer.name = OptimizerJob::Name::Sgd;
  const Plan plan = make_plan(job, tiny_llama());
  for (const Buffer& buffer : plan.buffers)
    EXPECT_NE(buffer.category, Category::OptimizerState);
}

TEST(Arena, IsWithinTwoPercentOfTheLiveBound) {
  for (const Strategy strategy :
       {Strategy::FullShard, Strategy::ShardGradOp, Strategy::NoShard, Strategy::Ddp}) {
    Job job = tiny_job(strategy, 4);
    job.training.sequence_length = 64;
    const Plan plan = make_plan(job, tiny_llama({.layers = 12}));
    const Bytes bound = plan.arena.live_bound_bytes;
    EXPECT_GE(plan.arena.bytes, bound);
    EXPECT_LE(static_cast<double>(plan.arena.bytes), 1.02 * static_cast<double>(bound));
  }
}

}  // namespace
}  // namespace shardplan
