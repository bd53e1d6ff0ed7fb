#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "planner/planner.h"
#include "plans/job_reader.h"
#include "plans/verify.h"
#include "simulator/memory_replay.h"
#include "tests/models/tiny_models.h"
#include "tests/property/random_plan.h"

namespace shardplan {
namespace {

struct EngineChoice {
  Engine engine;
  Strategy sharding;
};

/// Any job that a PyTorch engine plans.
Job random_torch_job() {
  const auto choice = *rc::gen::elementOf(std::vector<EngineChoice>{
      {Engine::Fsdp2, Strategy::FullShard},
      {Engine::Fsdp2, Strategy::ShardGradOp},
      {Engine::Fsdp2, Strategy::HybridShard},
      {Engine::Fsdp1, Strategy::FullShard},
      {Engine::Fsdp1, Strategy::ShardGradOp},
      {Engine::Fsdp1, Strategy::NoShard},
      {Engine::Fsdp1, Strategy::HybridShard},
      {Engine::Ddp, Strategy::Ddp},
      {Engine::Replicate, Strategy::NoShard},
  });
  Job job = testing::tiny_job(choice.sharding, *rc::gen::inRange(1, 40));
  job.cluster.nodes = *rc::gen::inRange(1, 3);
  job.strategy.engine = choice.engine;
  job.strategy.profile = Profile::TorchEager;
  job.strategy.use_orig_params = *rc::gen::arbitrary<bool>();
  job.strategy.limit_all_gathers = *rc::gen::arbitrary<bool>();
  job.strategy.forward_prefetch = *rc::gen::inRange(0, 3);
  job.strategy.backward_prefetch =
      *rc::gen::element(BackwardPrefetch::None, BackwardPrefetch::Pre, BackwardPrefetch::Post);
  job.strategy.ddp = {.bucket_cap_mb = *rc::gen::element(0.01, 0.1, 25.0),
                      .gradient_as_bucket_view = *rc::gen::arbitrary<bool>()};
  if (choice.engine != Engine::Ddp && *rc::gen::arbitrary<bool>())
    job.strategy.mixed_precision =
        MixedPrecision{.param = *rc::gen::element(Dtype::Float32, Dtype::BFloat16),
                       .reduce = *rc::gen::element(Dtype::Float32, Dtype::BFloat16)};
  TrainingJob& training = job.training;
  training.micro_batch = *rc::gen::inRange(1, 4);
  training.sequence_length = *rc::gen::inRange(1, 40);
  training.gradient_accumulation = {
      *rc::gen::inRange(1, 5),
      *rc::gen::element(GradientAccumulation::Sync::Every, GradientAccumulation::Sync::Last)};
  training.activation_checkpointing.kind =
      *rc::gen::element(ActivationCheckpointing::Kind::None, ActivationCheckpointing::Kind::Full,
                        ActivationCheckpointing::Kind::Every);
  training.optimizer.implementation =
      *rc::gen::element(OptimizerJob::Implementation::Foreach, OptimizerJob::Implementation::Fused,
                        OptimizerJob::Implementation::ForLoop);
  return job;
}

ModelGraph random_graph() {
  return testing::tiny_llama(
      {.layers = *rc::gen::inRange(1, 4), .tied = *rc::gen::arbitrary<bool>()});
}

RC_GTEST_PROP(TorchPlans, EveryPlanPassesVerify, ()) {
  const Job job = random_torch_job();
  const Plan plan = make_plan(job, random_graph());
  const std::vector<Fault> faults = verify(plan);
  if (!faults.empty())
    RC_FAIL(faults[0].instruction + " | " + faults[0].buffer + " | " + faults[0].why + "\n" +
            job_to_json(job));
}

/// What is allocated as each step ends.
std::vector<Bytes> ends_of_steps(const Plan& plan, std::size_t rank_class, int steps) {
  std::vector<Bytes> ends;
  MemoryReplay replay(plan, rank_class);
  const auto run = [&](const auto& self, const ProgramItem& item) -> void {
    for (std::int64_t pass = 0; pass < std::max<std::int64_t>(item.count, 1); ++pass) {
      if (item.segment >= 0)
        for (InstructionId id = plan.segments[item.segment].first;
             id < plan.segments[item.segment].last; ++id)
          replay.issue(id);
      for (const ProgramItem& inner : item.body)
        self(self, inner);
    }
  };
  for (const ProgramItem& item : plan.program)
    for (int step = 0; step < (item.count == ProgramItem::kOncePerStep ? steps : 1); ++step) {
      run(run, item);
      if (item.count < 0) ends.push_back(replay.requested());
    }
  return ends;
}

RC_GTEST_PROP(TorchPlans, NoStepLeavesMoreBehindThanTheFirst, ()) {
  const Plan plan = make_plan(random_torch_job(), random_graph());
  for (std::size_t rank_class = 0; rank_class < plan.classes.size(); ++rank_class) {
    const std::vector<Bytes> ends = ends_of_steps(plan, rank_class, 3);
    for (const Bytes end : ends)
      RC_ASSERT(end == ends.front());
  }
}

RC_GTEST_PROP(TorchPlans, SizeDoesNotDependOnTheNumberOfRanks, ()) {
  Job job = random_torch_job();
  const ModelGraph graph = random_graph();
  job.cluster.gpus_per_node = 64;
  const Plan small = make_plan(job, graph);
  job.cluster.gpus_per_node = 4096;
  const Plan large = make_plan(job, graph);
  RC_ASSERT(small.instructions.size() == large.instructions.size());
  RC_ASSERT(small.buffers.size() == large.buffers.size());
}

RC_GTEST_PROP(TorchPlans, SurviveJson, ()) {
  const Job any = random_torch_job();
  Job job = testing::random_plan_job(any.cluster.gpus_per_node, any.cluster.nodes);
  job.strategy = any.strategy;
  job.training = any.training;
  const Plan plan = make_plan(job, random_graph());
  RC_ASSERT(plan_from_json(to_json(plan), "plan.json") == plan);
}

}  // namespace
}  // namespace shardplan
