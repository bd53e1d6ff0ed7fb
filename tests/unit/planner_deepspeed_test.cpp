#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "planner/lora.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "plans/verify.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

Job zero_job(Strategy sharding, int ranks = 4, int micro_steps = 1) {
  Job job = testing::tiny_job(sharding, ranks);
  job.strategy.engine = Engine::DeepSpeed;
  job.strategy.profile = Profile::TorchEager;
  job.strategy.deepspeed = DeepSpeedOptions{.reduce_bucket_size = 4000};
  job.strategy.mixed_precision = {
      .param = Dtype::BFloat16, .reduce = Dtype::BFloat16, .buffer = Dtype::BFloat16};
  job.training.gradient_accumulation = {.steps = micro_steps, .sync = usual_sync(job.strategy)};
  return job;
}

Plan plan_of(const Job& job, const ModelGraph& model = testing::tiny_llama({})) {
  Plan plan = make_plan(job, model);
  const std::vector<Fault> faults = verify(plan);
  EXPECT_TRUE(faults.empty()) << to_string(job.strategy.sharding) << ": " << faults[0].instruction
                              << " | " << faults[0].buffer << " | " << faults[0].why;
  return plan;
}

/// Elements of what each operation of a kind writes, in the last segment of that name.
template <typename Kind>
std::vector<std::int64_t> written(const Plan& plan, const std::string& name) {
  std::vector<std::int64_t> elems;
  for (const Segment& segment : plan.segments) {
    if (segment.name != name && !segment.name.starts_with(name + "#")) continue;
    elems.clear();
    for (InstructionId id = segment.first; id < segment.last; ++id)
      if (std::holds_alternative<Kind>(plan.instructions[id].operation))
        elems.push_back(plan.instructions[id].writes[0].elems);
  }
  return elems;
}

std::int64_t sum(const std::vector<std::int64_t>& elems) {
  std::int64_t total = 0;
  for (const std::int64_t each : elems)
    total += each;
  return total;
}

TEST(DeepSpeed, PlansOfAllStagesAreRight) {
  for (const Strategy sharding : {Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Zero3})
    for (const int ranks : {1, 2, 3, 12})
      for (const int micro_steps : {1, 2, 4}) {
        Job job = zero_job(sharding, ranks, micro_steps);
        plan_of(job);
        job.training.activation_checkpointing.kind = ActivationCheckpointing::Kind::Full;
        job.strategy.deepspeed->overlap_comm = true;
        job.strategy.deepspeed->max_reuse_distance = 0;
        job.strategy.deepspeed->param_persistence_threshold = 0;
        job.strategy.deepspeed->contiguous_gradients = ranks == 3;
        if (sharding != Strategy::Ddp) job.strategy.deepspeed->grad_accum_dtype = Dtype::Float32;
        plan_of(job);
      }
}

TEST(DeepSpeed, PlansOfOffloadedStagesAreRight) {
  for (const Strategy sharding : {Strategy::Zero1, Strategy::Zero2, Strategy::Zero3})
    for (const int ranks : {1, 3})
      for (const int micro_steps : {1, 2, 4}) {
        Job job = zero_job(sharding, ranks, micro_steps);
        job.strategy.deepspeed->offload_optimizer.device = OffloadDevice::Cpu;
        if (sharding == Strategy::Zero3)
          job.strategy.deepspeed->offload_param.device = OffloadDevice::Cpu;
        plan_of(job);
      }
}

TEST(DeepSpeed, WhatIsOffloadedIsNotOnTheDevice) {
  Job job = zero_job(Strategy::Zero3);
  job.strategy.deepspeed->offload_optimizer.device = OffloadDevice::Cpu;
  job.strategy.deepspeed->offload_param.device = OffloadDevice::Cpu;
  const Plan plan = plan_of(job);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.category == Category::OptimizerState || buffer.category == Category::Parameters) {
      EXPECT_NE(buffer.space, Space::Device) << buffer.name;
    }
  }
}

TEST(DeepSpeed, StageOneReducesInTheLastMicroStepOnly) {
  const Plan plan = plan_of(zero_job(Strategy::Zero1, 4, 3));
  EXPECT_TRUE(written<AllReduce>(plan, "micro.first").empty());
  EXPECT_TRUE(written<AllReduce>(plan, "micro").empty());
  EXPECT_EQ(sum(written<AllReduce>(plan, "micro.last")), plan.parameter_count);
}

TEST(DeepSpeed, StageTwoReducesInEveryMicroStepInBucketsThatNeverPassTheirCap) {
  constexpr std::int64_t kCap = 30'000;  // above the largest parameter
  Job job = zero_job(Strategy::Zero2, 4, 3);
  job.strategy.deepspeed->reduce_bucket_size = kCap;
  const Plan plan = plan_of(job);
  for (const char* micro_step : {"micro.first", "micro", "micro.last"}) {
    const auto reduced = written<AllReduce>(plan, micro_step);
    EXPECT_EQ(sum(reduced), plan.parameter_count);
    EXPECT_GT(reduced.size(), 2u);
    for (const std::int64_t elems : reduced)
      EXPECT_LE(elems, kCap);
  }
}

TEST(DeepSpeed, ABucketIsAsLargeAsItsCapHoweverSmallTheModel) {
  Job job = zero_job(Strategy::Zero2);
  job.strategy.deepspeed = DeepSpeedOptions{};
  const Plan plan = plan_of(job);
  const auto bucket = std::ranges::find(plan.buffers, "ipg_bucket.0", &Buffer::name);
  ASSERT_NE(bucket, plan.buffers.end());
  EXPECT_EQ(bucket->bytes(), 1'000'000'000);
}

TEST(DeepSpeed, StageThreeGathersAheadOnceItKnowsTheOrder) {
  Job job = zero_job(Strategy::Zero3);
  job.strategy.deepspeed->param_persistence_threshold = 0;
  const Plan plan = plan_of(job);
  const auto of_segment = [&](const std::string& name) {
    const auto found = std::ranges::find(plan.segments, name, &Segment::name);
    return std::ranges::count_if(
        plan.instructions.begin() + found->first, plan.instructions.begin() + found->last,
        [](const Instruction& i) { return std::holds_alternative<AllGather>(i.operation); });
  };
  EXPECT_GT(of_segment("micro.last"), 20);
  EXPECT_LT(of_segment("micro.last#2"), 5);
}

TEST(DeepSpeed, WhatPersistsIsGatheredInTheStep) {
  Job job = zero_job(Strategy::Zero3);
  job.strategy.deepspeed->param_persistence_threshold = 1 << 20;
  const Plan plan = plan_of(job);
  EXPECT_TRUE(written<AllGather>(plan, "micro.last").empty());
  EXPECT_GE(sum(written<AllGather>(plan, "optimizer")), plan.parameter_count);
}

TEST(DeepSpeed, FrozenParametersAreNotReduced) {
  ModelGraph model = testing::tiny_llama({});
  for (Parameter& parameter : model.parameters)
    parameter.trainable = false;
  model = with_lora(std::move(model), {.rank = 2, .targets = {"q_proj"}});
  std::int64_t trained = 0;
  std::int64_t padding = 0;  // stage 3 pads each by itself
  for (const Parameter& parameter : model.parameters)
    if (parameter.trains()) {
      trained += parameter.elements();
      padding += round_up(parameter.elements(), 4) - parameter.elements();
    }
  for (const Strategy sharding : {Strategy::Zero1, Strategy::Zero2}) {
    const Plan plan = plan_of(zero_job(sharding), model);
    EXPECT_EQ(sum(written<AllReduce>(plan, "micro.last")), trained);
  }
  const Plan plan = plan_of(zero_job(Strategy::Zero3), model);
  EXPECT_EQ(4 * sum(written<ReduceScatter>(plan, "micro.last")), trained + padding);
}

TEST(DeepSpeed, RefusesByNameWhatIsNotModelled) {
  Job job = zero_job(Strategy::Zero3);
  job.strategy.deepspeed->zero_hpz_partition_size = 2;
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
  job = zero_job(Strategy::Zero3);
  job.strategy.deepspeed->offload_optimizer.device = OffloadDevice::Nvme;
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
  job = zero_job(Strategy::Zero2);
  job.strategy.deepspeed->offload_optimizer.device = OffloadDevice::Cpu;
  job.strategy.deepspeed->grad_accum_dtype = Dtype::Float32;
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
  job = zero_job(Strategy::Zero3);
  job.strategy.mixed_precision->buffer = Dtype::Float32;
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
  job = zero_job(Strategy::Zero1, 4, 2);
  job.training.gradient_accumulation.sync = GradientAccumulation::Sync::Every;
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
}

TEST(DeepSpeed, IsTheEngineOfItsShardingsAndGivesOthersAway) {
  Job job = testing::tiny_job(Strategy::FullShard, 4);
  job.strategy.engine = Engine::Fsdp2;
  job.strategy.profile = Profile::TorchEager;
  set_sharding(job, Strategy::Zero1);
  EXPECT_EQ(job.strategy.engine, Engine::DeepSpeed);
  EXPECT_EQ(job.training.gradient_accumulation.sync, GradientAccumulation::Sync::Last);
  plan_of(job);
  set_sharding(job, Strategy::FullShard);
  EXPECT_EQ(job.strategy.engine, Engine::Fsdp2);
  EXPECT_EQ(job.training.gradient_accumulation.sync, GradientAccumulation::Sync::Every);
  plan_of(job);
}

}  // namespace
}  // namespace shardplan
