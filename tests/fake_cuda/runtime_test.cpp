// Plans executed by the CUDA runtime on the fake: what it finds, and what becomes of failures.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "planner/planner.h"
#include "plans/error.h"
#include "plans/verify.h"
#include "runtime/dry_run.h"
#include "runtime/executor.h"
#include "runtime/plugin_entry.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/models/tiny_models.h"
#include "tests/unit/scratch_folder.h"

extern "C" const shardplan::Plugin shardplan_plugin;

namespace shardplan {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr testing::TinyLlama kSizes{
    .layers = 2, .channels = 8, .heads = 2, .kv_heads = 1, .ffn = 12, .vocab = 19};

class FakeCuda : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda::set_devices(4, 64 << 20); }
  void TearDown() override {
    fake_cuda::take_fault();
    fake_cuda::set_schedule(fake_cuda::Schedule::Lazy, 1);
  }

  Plan plan(Strategy sharding, int world, Profile profile = Profile::Cuda) const {
    Job job = testing::tiny_job(sharding, world);
    job.strategy.profile = profile;
    job.run.steps = 3;
    job.run.tokens = tokens_;
    job.run.output = folder_.path("out");
    return make_plan(job, testing::tiny_llama(kSizes));
  }
  Report run(const Plan& plan, ExecuteOptions options = {}) const {
    options.device = shardplan_plugin.kind;
    return execute(plan, options);
  }
  std::vector<double> losses(const Plan& plan, const ExecuteOptions& options = {}) const {
    std::vector<double> all;
    for (const StepReport& step : run(plan, options).steps)
      all.push_back(step.loss);
    return all;
  }
  /// What is said of a rank that sleeps, four times as long as the others wait, before the first
  /// collective of the second step.
  std::string error_of_a_hanging_rank(const Plan& plan) const {
    ExecuteOptions options;
    options.collective_timeout_s = 0.3;
    std::atomic<int> calls{0};
    options.before_instruction = [&](InstructionId id, int step) {
      if (step == 1 && is_collective(plan.instructions[id].operation) && ++calls == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    };
    return error_of<SystemError>([&] { run(plan, options); });
  }

  const testing::ScratchFolder folder_;
  const std::string tokens_ = folder_.file("tokens.bin", [] {
    std::string text;
    for (int i = 0; i < 600; ++i)
      text += {static_cast<char>(i * i % kSizes.vocab), '\0'};
    return text;
  }());
};

TEST_F(FakeCuda, TrainsWhatTheCpuTrains) {
  for (const Strategy sharding : {Strategy::Ddp, Strategy::ShardGradOp, Strategy::FullShard}) {
    const std::vector<double> got = losses(plan(sharding, 2));
    const Report twin = execute(plan(sharding, 2, Profile::CpuReference), {});
    ASSERT_EQ(got.size(), 3U);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], twin.steps[i].loss, 1e-5);
  }
}

TEST_F(FakeCuda, TheSameBitsUnderEverySchedule) {
  const Plan trained = plan(Strategy::FullShard, 2);
  const std::vector<double> lazy = losses(trained);
  fake_cuda::set_schedule(fake_cuda::Schedule::Eager, 1);
  EXPECT_EQ(losses(trained), lazy);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fake_cuda::set_schedule(fake_cuda::Schedule::Random, seed);
    EXPECT_EQ(losses(trained), lazy) << "seed " << seed;
  }
}

TEST_F(FakeCuda, CollectivesWorkInRegisteredMemory) {
  fake_cuda::take_collectives();
  losses(plan(Strategy::FullShard, 2));
  const auto [all, registered] = fake_cuda::take_collectives();
  EXPECT_GT(all, 10);
  EXPECT_EQ(registered, all);
}

/// Learning rate, momentum's corrections, tokens and losses change from step to step.
TEST_F(FakeCuda, GraphsOfAStepTrainTheSameBits) {
  for (const Strategy sharding : {Strategy::Ddp, Strategy::FullShard}) {
    Plan trained = plan(sharding, 2);
    trained.job.run.steps = 5;
    trained.job.training.schedule.warmup_steps = 5;
    trained.job.run.checkpoint_every = 3;
    const std::vector<double> eager = losses(trained);
    Plan twin = plan(sharding, 2, Profile::CpuReference);
    twin.job.run.steps = trained.job.run.steps;
    twin.job.training.schedule = trained.job.training.schedule;
    const Report expected = execute(twin, {});
    ASSERT_EQ(eager.size(), expected.steps.size());
    for (std::size_t i = 0; i < eager.size(); ++i)
      EXPECT_NEAR(eager[i], expected.steps[i].loss, 1e-5);
    trained.job.run.cuda_graphs = true;
    for (const auto& [schedule, seed] : {std::pair(fake_cuda::Schedule::Lazy, 1),
                                         {fake_cuda::Schedule::Eager, 1},
                                         {fake_cuda::Schedule::Random, 1},
                                         {fake_cuda::Schedule::Random, 2}}) {
      fake_cuda::set_schedule(schedule, static_cast<std::uint64_t>(seed));
      EXPECT_EQ(losses(trained), eager) << to_string(sharding);
    }
  }
}

TEST_F(FakeCuda, ARankThatHangsBeforeAGraphIsFound) {
  Plan trained = plan(Strategy::Ddp, 2);
  trained.job.run.cuda_graphs = true;
  EXPECT_THAT(error_of_a_hanging_rank(trained),
              AllOf(HasSubstr("nothing of the device has finished for 0.3 s"),
                    HasSubstr("is at 'a step's graph'")));
}

TEST_F(FakeCuda, GraphsAreForGpus) {
  Plan trained = plan(Strategy::Ddp, 1, Profile::CpuReference);
  trained.job.run.cuda_graphs = true;
  EXPECT_THAT(error_of<InputError>([&] { execute(trained, {}); }),
              HasSubstr("run.cuda_graphs: CPU ranks have no graphs"));
}

TEST_F(FakeCuda, ADryRunTimesTheCollectivesOfThePlan) {
  const auto times =
      time_collectives(plan(Strategy::FullShard, 4), {.device = *shardplan_plugin.kind});
  std::set<std::string> kinds;
  for (const CollectiveTime& time : times) {
    kinds.insert(time.kind);
    EXPECT_EQ(time.ranks, 4);
    EXPECT_GT(time.seconds, 0);
  }
  EXPECT_THAT(kinds, ElementsAre("all_gather", "all_reduce", "reduce_scatter"));
}

// What verify() proves is what the clocks of the fake watch: where a wait is missing, one says so
// before the run and the other during it.
TEST_F(FakeCuda, EveryMissingWaitIsARace) {
  const Plan whole = plan(Strategy::FullShard, 2);
  int missed = 0;
  int found = 0;
  for (InstructionId id = 0; id < static_cast<InstructionId>(whole.instructions.size()); ++id)
    for (std::size_t w = 0; w < whole.instructions[id].after.size(); ++w) {
      Plan without = whole;
      auto& after = without.instructions[id].after;
      after.erase(after.begin() + static_cast<std::ptrdiff_t>(w));
      if (verify(without).empty()) continue;  // a throttle, or a wait that another one implies
      std::string error;
      try {
        run(without);
      } catch (const SystemError& failure) {
        error = failure.what();
      }
      fake_cuda::take_fault();
      (error.find("race") != std::string::npos ? found : missed) += 1;
      EXPECT_THAT(error, HasSubstr("race"))
          << whole.instructions[id].name << " without "
          << whole.instructions[whole.instructions[id].after[w].id].name;
    }
  EXPECT_EQ(missed, 0);
  EXPECT_GT(found, 20);
}

TEST_F(FakeCuda, TooLittleMemoryIsSaid) {
  fake_cuda::set_devices(4, 33 << 20);  // room for cuBLASLt's workspace, and little else
  Plan large = plan(Strategy::Ddp, 1);
  large.arena.bytes += 8 << 20;
  EXPECT_THAT(error_of<SystemError>([&] { run(large); }), HasSubstr("out of memory"));
}

TEST_F(FakeCuda, RanksNeedADeviceEach) {
  fake_cuda::set_devices(1, 64 << 20);
  EXPECT_THAT(error_of<SystemError>([&] { run(plan(Strategy::Ddp, 2)); }),
              HasSubstr("2 ranks on this machine need a CUDA device each, it has 1"));
}

TEST_F(FakeCuda, OnlyPlansForItsKernelsRun) {
  EXPECT_THAT(error_of<InputError>([&] { run(plan(Strategy::Ddp, 1, Profile::CpuOneDnn)); }),
              HasSubstr("re-plan with profile cuda to run it on CUDA ranks"));
}

TEST_F(FakeCuda, ARankThatFailsEndsAllOfThem) {
  const Plan trained = plan(Strategy::FullShard, 4);
  ExecuteOptions options;
  std::atomic<int> calls{0};
  options.before_instruction = [&](InstructionId id, int step) {
    if (step == 1 && trained.instructions[id].name.starts_with("reduce_scatter") && ++calls == 2)
      throw SystemError("planted");
  };
  EXPECT_THAT(error_of<SystemError>([&] { run(trained, options); }),
              AllOf(HasSubstr("instruction 'reduce_scatter"), HasSubstr("planted")));
}

TEST_F(FakeCuda, ARankThatHangsIsFound) {
  EXPECT_THAT(error_of_a_hanging_rank(plan(Strategy::Ddp, 2)),
              AllOf(HasSubstr("nothing of the device has finished for 0.3 s"),
                    HasSubstr("stream ar is at 'all_reduce.bucket.")));
}

TEST_F(FakeCuda, GoesOnFromACheckpoint) {
  Plan trained = plan(Strategy::FullShard, 2);
  trained.job.run.steps = 4;
  trained.job.run.checkpoint_every = 2;
  const std::vector<double> all = losses(trained);
  ExecuteOptions options;
  options.resume = folder_.path("out/checkpoints/step-00000002");
  trained.job.run.checkpoint_every = 0;
  const std::vector<double> rest = losses(trained, options);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(rest, std::vector<double>(all.begin() + 2, all.end()));
}

TEST_F(FakeCuda, RehearsesOneRankOfMany) {
  const Plan trained = plan(Strategy::FullShard, 4);
  ExecuteOptions options;
  options.device = shardplan_plugin.kind;
  fake_cuda::set_devices(1, 64 << 20);
  const RankMemory memory = rehearse(trained, options, 3).ranks[0].memory;
  EXPECT_EQ(memory.peak_allocated_bytes, trained.arena.bytes);
  // With the workspace of cuBLASLt and what kernels add up in.
  EXPECT_GT(memory.peak_device_bytes, trained.arena.bytes + (32 << 20));
  EXPECT_LT(memory.peak_device_bytes, trained.arena.bytes + (33 << 20));
}

}  // namespace
}  // namespace shardplan
