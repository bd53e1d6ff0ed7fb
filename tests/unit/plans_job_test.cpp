#include "plans/job.h"

#include <gtest/gtest.h>

#include "plans/error.h"

namespace shardplan {
namespace {

Job job_on(int max_gpus_per_node) {
  Job job;
  job.cluster.gpu.max_gpus_per_node = max_gpus_per_node;
  return job;
}

TEST(World, StaysInOneNodeWhileItFits) {
  Job job = job_on(8);
  set_world(job, 6);
  EXPECT_EQ(job.cluster.gpus_per_node, 6);
  EXPECT_EQ(job.cluster.nodes, 1);
}

TEST(World, FillsWholeNodes) {
  Job job = job_on(8);
  set_world(job, 1024);
  EXPECT_EQ(job.cluster.gpus_per_node, 8);
  EXPECT_EQ(job.cluster.nodes, 128);
}

TEST(World, RefusesWhatDoesNotDivideIntoNodes) {
  Job job = job_on(8);
  for (const int gpus : {12, 0, -1, kLargestWorld + 8})
    EXPECT_THROW(set_world(job, gpus), InputError) << gpus;
}

// 0.002, 5 of 20 steps of warm-up and a tenth at the end: the recipe of the PyTorch runs.
TEST(LearningRate, RisesLinearlyFromTheFirstStep) {
  const OptimizerJob optimizer{.lr = 2e-3};
  const ScheduleJob schedule{ScheduleJob::Name::Cosine, 5, 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 0, 20), 4e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 4, 20), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 5, 20), 2e-3);
}

TEST(TokensPerStep, AreThoseOfAllRanksAndMicroSteps) {
  Job job;
  job.cluster.gpus_per_node = 4;
  job.cluster.nodes = 2;
  job.training.micro_batch = 3;
  job.training.sequence_length = 1000;
  job.training.gradient_accumulation.steps = 5;
  EXPECT_EQ(tokens_per_step(job), 8 * 3 * 1000 * 5);
}

TEST(LearningRate, FallsAsHalfACosine) {
  const OptimizerJob optimizer{.lr = 2e-3};
  const ScheduleJob schedule{ScheduleJob::Name::Cosine, 5, 0.1};
  EXPECT_NEAR(learning_rate(optimizer, schedule, 10, 20), 1.55e-3, 1e-12);  // cos(pi/3) = 1/2
  EXPECT_NEAR(learning_rate(optimizer, schedule, 20, 20), 2e-4, 1e-12);
  EXPECT_NEAR(learning_rate(optimizer, schedule, 99, 20), 2e-4, 1e-12);
}

TEST(LearningRate, FallsAsALine) {
  const OptimizerJob optimizer{.lr = 1};
  const ScheduleJob schedule{ScheduleJob::Name::Linear, 0, 0};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 5, 20), 0.75);
}

TEST(LearningRate, StaysWhenConstantAfterWarmUp) {
  const OptimizerJob optimizer{.lr = 1};
  const ScheduleJob schedule{ScheduleJob::Name::Constant, 2, 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 0, 20), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 19, 20), 1);
}

TEST(LearningRate, OfARunThatIsAllWarmUpEndsAtTheTop) {
  const OptimizerJob optimizer{.lr = 1};
  const ScheduleJob schedule{ScheduleJob::Name::Cosine, 4, 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 3, 4), 1);
}

TEST(Strategies, AreNamedAsPyTorchNamesThem) {
  for (const char* name : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                           "_HYBRID_SHARD_ZERO2", "DDP", "ZERO_1", "ZERO_2", "ZERO_3"})
    EXPECT_EQ(to_string(strategy_from(name)), name);
  EXPECT_THROW(strategy_from("ZERO"), InputError);
}

}  // namespace
}  // namespace shardplan
