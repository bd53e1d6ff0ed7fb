#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/model.h"
#include "planner/planner.h"
#include "plans/job_reader.h"
#include "simulator/simulate.h"
#include "tools/break_even.h"
#include "tools/comparison.h"
#include "tools/remedies.h"

namespace shardplan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Hardware& hardware() {
  static const Hardware read = Hardware::read(data_folder());
  return read;
}

/// llama-tiny on four ranks with so much memory each.
Job job_with(Bytes memory_bytes) {
  Job job = parse_job(
      "model: {preset: llama-tiny}\ncluster: {gpu: cpu, gpus_per_node: 4}\n"
      "training: {micro_batch: 2, sequence_length: 64}",
      "job.yaml", hardware(), {});
  job.cluster.gpu.memory_bytes = memory_bytes;
  return job;
}

Bytes needed_with(const Job& job, int layers) {
  return device_bytes(make_plan(job, build_model(job.model, layers)), hardware());
}

std::vector<ComparedStrategy> compared(const Job& job, const std::vector<Strategy>& strategies) {
  return compare_strategies(job, strategies, std::nullopt, hardware(), [](Strategy) {});
}

TEST(LargestThatFits, OfBlocksIsTheLastThatFits) {
  for (const Bytes memory : {Bytes{12} << 20, Bytes{50} << 20, Bytes{100} << 20}) {
    const Job job = job_with(memory);
    const auto largest = largest_that_fits(job, Maximize::Layers, hardware());
    ASSERT_TRUE(largest.has_value());
    EXPECT_EQ(needed_with(job, static_cast<int>(largest->number)), largest->device_bytes);
    EXPECT_EQ(needed_with(job, static_cast<int>(largest->number) + 1), largest->next_device_bytes);
    EXPECT_LE(largest->device_bytes, memory);
    EXPECT_GT(largest->next_device_bytes, memory);
  }
}

TEST(LargestThatFits, FindsOneBlockAndNone) {
  const Job roomy = job_with(Bytes{1} << 30);
  const Bytes one = needed_with(roomy, 1);
  EXPECT_EQ(largest_that_fits(job_with(one), Maximize::Layers, hardware())->number, 1);
  EXPECT_FALSE(largest_that_fits(job_with(one - 1), Maximize::Layers, hardware()).has_value());
}

TEST(LargestFit, IsFoundWhereNeedsDoNotGrowInALine) {
  int trials = 0;
  const auto square = [&](std::int64_t n) { return ++trials, 7 + n * n; };
  for (const Bytes limit : {Bytes{8}, Bytes{11}, Bytes{1'000'007}, Bytes{999'999'999}}) {
    trials = 0;
    const auto largest = largest_fit(square, limit, std::int64_t{1} << 28);
    ASSERT_TRUE(largest.has_value());
    EXPECT_LE(largest->device_bytes, limit);
    EXPECT_GT(largest->next_device_bytes, limit);
    EXPECT_LE(trials, 60);
  }
}

TEST(LargestFit, StopsAtTheMost) {
  const auto needs = [](std::int64_t n) { return Bytes{n}; };
  for (const std::int64_t most : {1, 2, 3, 4, 100}) {
    const auto largest = largest_fit(needs, 1000, most);
    EXPECT_EQ(largest->number, most);
    EXPECT_FALSE(largest->next_device_bytes.has_value());
  }
  EXPECT_FALSE(largest_fit(needs, 1000, 0).has_value());
}

TEST(LargestThatFits, OfSequencesGoesInStepsUpToTheLearnedPositions) {
  Job job = job_with(Bytes{100} << 20);
  const auto largest = largest_that_fits(job, Maximize::SequenceLength, hardware());
  ASSERT_TRUE(largest.has_value());
  EXPECT_EQ(largest->number % kSequenceStep, 0);
  job.training.sequence_length = largest->number + kSequenceStep;
  EXPECT_EQ(device_bytes(make_plan(job), hardware()), largest->next_device_bytes);

  job.model.preset = "gpt2";
  job.training.micro_batch = 1;
  job.cluster.gpu.memory_bytes = Bytes{1} << 40;
  EXPECT_EQ(largest_that_fits(job, Maximize::SequenceLength, hardware())->number, 1024);
}

TEST(Advice, NamesWhatDoesNotFitAndByHowMuch) {
  const Job job = job_with(Bytes{20} << 20);
  EXPECT_THAT(advice(compared(job, {Strategy::Ddp, Strategy::FullShard}), hardware()),
              StartsWith("FULL_SHARD: DDP does not fit, it needs "));
}

TEST(Advice, PrefersTheFastestOfThoseThatFit) {
  const auto rows = compared(job_with(Bytes{64} << 20),
                             {Strategy::Ddp, Strategy::ShardGradOp, Strategy::FullShard});
  const std::string sentence = advice(rows, hardware());
  EXPECT_THAT(sentence, HasSubstr(": all fit; it is "));
  for (const ComparedStrategy& row : rows)
    if (sentence.starts_with(to_string(row.strategy))) {
      for (const ComparedStrategy& other : rows)
        EXPECT_LE(row.step_s(), other.step_s() * 1.01);
    }
}

TEST(Advice, SaysWhatWouldHelpWhenNothingFits) {
  EXPECT_THAT(advice(compared(job_with(Bytes{8} << 20), {Strategy::FullShard}), hardware()),
              HasSubstr("what would help first: "));
}

TEST(Remedies, PutWhatFitsFirst) {
  Job job = job_with(Bytes{20} << 20);
  job.strategy.sharding = Strategy::Ddp;
  const std::vector<Remedy> found = remedies(job, hardware());
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].change, "--sharding FULL_SHARD");
  EXPECT_TRUE(found[0].fits);
}

TEST(ModelState, ShrinksWithTheShardGroup) {
  const auto rows = compared(job_with(Bytes{64} << 20), {Strategy::Ddp, Strategy::FullShard});
  EXPECT_NEAR(static_cast<double>(model_state_bytes(rows[0].plan)),
              4.0 * static_cast<double>(model_state_bytes(rows[1].plan)), 4096);
}

TEST(BreakEven, IsWhereTheStepsDifferBySoMuch) {
  Job job = parse_job("model: {preset: gpt2}\ncluster: {gpu: a100-sxm-80, gpus_per_node: 4}",
                      "job.yaml", hardware(), {});
  job.training.sequence_length = 512;
  const auto found = break_even(job, Strategy::FullShard, Strategy::Ddp, hardware());
  ASSERT_TRUE(found && found->bytes_per_s);
  const auto ratio = [&](double rate) {
    job.cluster.network.intra_node_bytes_per_s = rate;
    Seconds steps[2];
    for (const Strategy strategy : {Strategy::FullShard, Strategy::Ddp}) {
      Job variant = job;
      set_sharding(variant, strategy);
      const Plan plan = make_plan(variant);
      steps[strategy == Strategy::Ddp] =
          simulate_time(plan, hardware().costs(plan.profile))->step_s;
    }
    return steps[0] / steps[1];
  };
  EXPECT_LE(ratio(*found->bytes_per_s), kBearable);
  EXPECT_GT(ratio(*found->bytes_per_s / 1.05), kBearable);
}

TEST(TimeRange, WidensWithWhatIsNotStated) {
  const auto range = [](const std::string& yaml) {
    return simulate(make_plan(parse_job(yaml, "job.yaml", hardware(), {})),
                    hardware().costs(Profile::TorchEager))
        .time.value();
  };
  const std::string job = "model: {preset: gpt2}\ncluster: {gpu: a100-sxm-80}\n";
  const std::string stated = job +
                             "training: {sequence_length: 512, activation_checkpointing: none}\n"
                             "strategy: {profile: torch-eager, engine: fsdp2}\n";
  EXPECT_EQ(range(stated).range_share, 0.10);
  EXPECT_THAT(range(stated).defaulted, ::testing::IsEmpty());
  const TimeReport open =
      range(job + "training: {sequence_length: 512}\nstrategy: {engine: fsdp2}\n");
  EXPECT_EQ(open.range_share, 0.20);
  EXPECT_THAT(open.defaulted, ElementsAre("training.activation_checkpointing", "strategy.profile"));
}

}  // namespace
}  // namespace shardplan
