#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "planner/planner.h"
#include "plans/error.h"
#include "plans/happens_before.h"
#include "plans/verify.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
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

TEST(Schedule, LossChunksKeepLargeVocabulariesSmall) {
  const ModelGraph model = tiny_llama({.vocab = 32'000});
  Job job = tiny_job(Strategy::NoShard, 1);
  job.training.sequence_length = 1024;
  const Bytes logits = job.training.micro_batch * 1024 * 32'000 * size_of(Dtype::Float32);
  const Bytes whole = make_plan(job, model).arena.bytes;
  job.training.loss_chunks = 8;
  const Bytes chunked = make_plan(job, model).arena.bytes;
  EXPECT_LT(chunked, whole - logits / 2);
  EXPECT_GE(chunked, whole - logits / 8 * 7);
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

std::vector<std::string> segments_of_step(const Plan& plan) {
  std::vector<std::string> names;
  for (const ProgramItem& item : plan.program.at(2).body)
    names.push_back(fmt::format("{} x {}", item.count, plan.segments[item.segment].name));
  return names;
}

Job accumulating_job(Strategy sharding, int world, GradientAccumulation::Sync sync) {
  Job job = tiny_job(sharding, world);
  job.training.gradient_accumulation = {.steps = 4, .sync = sync};
  return job;
}

TEST(Accumulation, ReducesInEveryMicroStepAndAddsShards) {
  const Plan plan = make_plan(
      accumulating_job(Strategy::FullShard, 4, GradientAccumulation::Sync::Every), tiny_llama());
  EXPECT_THAT(segments_of_step(plan),
              ElementsAre("1 x zero_grad", "4 x micro_sync", "1 x optimizer"));
  const Instruction& sum = plan.instructions[find(plan, "accumulate_gradients.root")];
  EXPECT_EQ(sum.writes[0].elems, plan.units[0].shard_elems);
  EXPECT_EQ(sum.stream, Stream::ReduceScatter);
}

TEST(Accumulation, WithoutSyncReducesWholeGradientsOnce) {
  const Plan plan = make_plan(
      accumulating_job(Strategy::FullShard, 4, GradientAccumulation::Sync::Last), tiny_llama());
  EXPECT_THAT(segments_of_step(plan),
              ElementsAre("1 x zero_grad", "3 x micro", "1 x micro_sync", "1 x optimizer"));
  const Segment& micro = plan.segments[2];
  for (InstructionId id = micro.first; id < micro.last; ++id)
    EXPECT_FALSE(std::holds_alternative<ReduceScatter>(plan.instructions[id].operation));
}

TEST(Accumulation, OnOneRankAddsInTheKernels) {
  for (const auto sync : {GradientAccumulation::Sync::Every, GradientAccumulation::Sync::Last}) {
    const Plan plan = make_plan(accumulating_job(Strategy::FullShard, 1, sync), tiny_llama());
    for (const Buffer& buffer : plan.buffers)
      EXPECT_NE(buffer.category, Category::UnshardedGradients) << buffer.name;
  }
}

TEST(Hybrid, ReducesInTheGroupAndThenAcrossReplicas) {
  Job job = tiny_job(Strategy::HybridShard, 4);
  job.cluster.nodes = 3;
  const Plan plan = make_plan(job, tiny_llama());
  EXPECT_EQ(plan.mesh.shard, 4);
  EXPECT_EQ(plan.mesh.replicate, 3);
  const Instruction& scatter = plan.instructions[find(plan, "reduce_scatter.root")];
  const Instruction& reduce = plan.instructions[find(plan, "all_reduce.root")];
  EXPECT_EQ(std::get<ReduceScatter>(scatter.operation).group, Group::Shard);
  EXPECT_EQ(std::get<AllReduce>(reduce.operation).group, Group::Replicate);
  EXPECT_EQ(reduce.reads, scatter.writes);
  EXPECT_EQ(count<AllGather>(plan, Phase::Backward), 2);
  job.strategy.sharding = Strategy::HybridShardZero2;
  EXPECT_EQ(count<AllGather>(make_plan(job, tiny_llama()), Phase::Backward), 0);
}

TEST(Hybrid, AGroupThatDoesNotDivideTheWorldIsRefused) {
  Job job = tiny_job(Strategy::HybridShard, 12);
  job.strategy.shard_group = 5;
  EXPECT_THAT([&] { make_plan(job, tiny_llama()); },
              ThrowsMessage<InputError>(HasSubstr("strategy.shard_group: 5 ranks do not divide the "
                                                  "world of 12; the nearest that does is 4")));
}

TEST(Reshard, OverrulesWhatTheStrategyKeeps) {
  Job job = tiny_job(Strategy::FullShard, 4);
  job.strategy.reshard_after_forward = ReshardAfterForward{.reshard = false};
  EXPECT_EQ(count<AllGather>(make_plan(job, tiny_llama()), Phase::Backward), 0);
  job.strategy.reshard_after_forward = ReshardAfterForward{.reshard = true};
  EXPECT_EQ(count<AllGather>(make_plan(job, tiny_llama()), Phase::Backward), 3);  // the root, too
  job.strategy.sharding = Strategy::ShardGradOp;
  EXPECT_THROW(make_plan(job, tiny_llama()), InputError);
}

TEST(Reshard, ToASpanKeepsAPartAndGathersAmongNeighbours) {
  Job job = tiny_job(Strategy::FullShard, 8);
  job.strategy.reshard_after_forward = ReshardAfterForward{.ranks = 2};
  const Plan plan = make_plan(job, tiny_llama());
  const Instruction& gather = plan.instructions[find(plan, "all_gather.model.layers.0.backward")];
  EXPECT_EQ(std::get<AllGather>(gather.operation).group, Group::Span);
  EXPECT_EQ(gather.reads[0].elems * 2, gather.writes[0].elems);
  job.strategy.reshard_after_forward->ranks = 3;
  EXPECT_THROW(make_plan(job, tiny_llama()), InputError);
}

TEST(MixedPrecision, GathersAndReducesInItsDtypes) {
  Job job = tiny_job(Strategy::FullShard, 4);
  job.strategy.mixed_precision = {.param = Dtype::BFloat16, .reduce = Dtype::Float32};
  const Plan plan = make_plan(job, tiny_llama());
  const auto dtype = [&](const View& view) { return plan.buffers[view.buffer].dtype; };
  EXPECT_EQ(dtype(plan.instructions[find(plan, "all_gather.root.forward")].writes[0]),
            Dtype::BFloat16);
  EXPECT_EQ(dtype(plan.instructions[find(plan, "reduce_scatter.root")].reads[0]), Dtype::Float32);
  EXPECT_EQ(dtype(plan.instructions[find(plan, "root.adam")].reads[0]), Dtype::Float32);
}

// ZeRO keeps the parameters whole through a step's micro-steps; stage 1 the gradients too.
TEST(Schedule, ZeroGathersOnceAStepAndStageOneReducesOnce) {
  for (const Strategy sharding : {Strategy::Zero1, Strategy::Zero2}) {
    Job job = tiny_job(sharding, 4);
    job.strategy.engine = Engine::Native;
    job.training.gradient_accumulation.steps = 3;
    const Plan plan = make_plan(job, tiny_llama());
    EXPECT_TRUE(verify(plan).empty());
    std::map<std::string, int> gathers;  // by segment
    std::map<std::string, int> reductions;
    for (const Segment& segment : plan.segments)
      for (InstructionId id = segment.first; id < segment.last; ++id) {
        const Operation& operation = plan.instructions[id].operation;
        gathers[segment.name] += std::holds_alternative<AllGather>(operation);
        reductions[segment.name] += std::holds_alternative<ReduceScatter>(operation);
      }
    EXPECT_EQ(gathers["gather"], 3);
    EXPECT_EQ(gathers["micro_sync"], 0);
    EXPECT_EQ(reductions["micro_sync"], 3);
    EXPECT_EQ(gathers.contains("micro"), sharding == Strategy::Zero1);
    EXPECT_EQ(reductions["micro"], 0);
  }
}

TEST(Schedule, NarrowProductsAreThoseOfBlocks) {
  Job job = tiny_job(Strategy::FullShard, 4);
  job.training.matmul_dtype = MatmulDtype::Float8;
  EXPECT_THROW(make_plan(job, tiny_llama()), InputError);  // the GPU has no units for them
  job.cluster.gpu.matmul_flops_bf16 = 1e12;
  job.cluster.gpu.matmul_flops_fp8 = 2e12;
  const Plan plan = make_plan(job, tiny_llama());
  int narrow = 0;
  for (const Instruction& instruction : plan.instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.operation);
    if (compute == nullptr || !compute->attributes.has(Attribute::OperandBits)) continue;
    EXPECT_EQ(compute->attributes.integer(Attribute::OperandBits), 8);
    EXPECT_THAT(instruction.name, ::testing::StartsWith("model.layers."));
    ++narrow;
  }
  EXPECT_EQ(narrow, 2 * 7 * 3);  // forward, and backward for input and weight
}

TEST(Schedule, OptimizerStatesInHostMemoryAreFetchedForTheirUpdate) {
  Job job = tiny_job(Strategy::FullShard, 4);
  const Plan on_device = make_plan(job, tiny_llama({.layers = 6}));
  job.strategy.cpu_offload.optimizer = true;
  const Plan plan = make_plan(job, tiny_llama({.layers = 6}));
  EXPECT_TRUE(verify(plan).empty());
  EXPECT_EQ(count<Copy>(plan, Phase::Optimizer), 7 * 2 * 2);  // units x states x there and back
  for (const Buffer& buffer : plan.buffers)
    if (buffer.resident && buffer.category == Category::OptimizerState) {
      EXPECT_EQ(buffer.space, Space::Pinned);
    }
  EXPECT_LT(plan.arena.bytes, on_device.arena.bytes);
}

}  // namespace
}  // namespace shardplan
