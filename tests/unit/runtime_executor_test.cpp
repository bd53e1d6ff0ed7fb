#include "runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "plans/error.h"
#include "plans/verify.h"
#include "runtime/safetensors.h"
#include "tests/unit/scratch_folder.h"
#include "tests/unit/two_unit_plan.h"

namespace shardplan {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::two_unit_plan;
using testing::TwoUnits;

class Executor : public ::testing::Test {
 protected:
  TwoUnits options(int world, bool sharded) {
    std::string tokens;
    for (int i = 0; i < 200; ++i) {
      tokens.push_back(static_cast<char>(i * i % testing::kTwoUnitsVocab));
      tokens.push_back(0);
    }
    return {.world = world,
            .sharded = sharded,
            .steps = 4,
            .tokens = folder_.file("tokens.bin", tokens),
            .output = folder_.path("out")};
  }
  Plan plan(int world, bool sharded) { return two_unit_plan(options(world, sharded)); }

  std::vector<float> written(const std::string& name) {
    const SafeTensors file(folder_.path("out"));
    std::vector<float> values(file.find(name)->elements());
    read_elements(*file.find(name), 0, values);
    return values;
  }

  ScratchFolder folder_;
};

std::vector<double> losses(const Report& report) {
  std::vector<double> values;
  for (const StepReport& step : report.steps)
    values.push_back(step.loss);
  return values;
}

TEST_F(Executor, HandWrittenPlansHaveNoFaults) {
  for (const bool sharded : {false, true})
    for (const int world : {1, 2, 3})
      for (const Fault& fault : verify(plan(world, sharded)))
        ADD_FAILURE() << sharded << world << fault.instruction << fault.buffer << fault.why;
}

TEST_F(Executor, LossFallsOverTheSteps) {
  Plan job = plan(1, false);
  job.job.run.steps = 60;
  const Report report = execute(job, {});
  ASSERT_EQ(report.steps.size(), 60);
  EXPECT_NEAR(report.steps.front().loss, std::log(testing::kTwoUnitsVocab), 0.5);
  EXPECT_LT(report.steps.back().loss, 0.7 * report.steps.front().loss);
}

TEST_F(Executor, TwoRunsAreBitIdentical) {
  for (const bool sharded : {false, true}) {
    const Report first = execute(plan(3, sharded), {});
    const std::vector<float> weights = written("head.weight");
    const Report second = execute(plan(3, sharded), {});
    EXPECT_EQ(losses(first), losses(second));
    EXPECT_EQ(weights, written("head.weight"));
  }
}

TEST_F(Executor, ShardedAndReplicatedParametersTrainAlike) {
  const Report whole = execute(plan(3, false), {});
  const std::vector<float> weights = written("embedding.weight");
  const Report sharded = execute(plan(3, true), {});
  for (std::size_t step = 0; step < whole.steps.size(); ++step) {
    EXPECT_NEAR(whole.steps[step].loss, sharded.steps[step].loss, 1e-6);
    EXPECT_NEAR(whole.steps[step].grad_norm, sharded.steps[step].grad_norm, 1e-6);
  }
  const std::vector<float> others = written("embedding.weight");
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_NEAR(weights[i], others[i], 1e-6);
}

TEST_F(Executor, ReportsEveryStepOnceInOrder) {
  std::vector<int> seen;
  ExecuteOptions options;
  options.on_step = [&](const StepReport& step) {
    seen.push_back(step.step);
    EXPECT_GT(step.loss, 0);
    EXPECT_GT(step.grad_norm, 0);
    EXPECT_GT(step.seconds, 0);
    EXPECT_DOUBLE_EQ(step.learning_rate, 0.5);
  };
  const Report report = execute(plan(2, true), options);
  EXPECT_THAT(seen, ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(report.world_size, 2);
  ASSERT_TRUE(report.time.has_value());
  EXPECT_GT(report.time->tokens_per_s, report.time->tokens_per_s_per_gpu);
}

TEST_F(Executor, MeasuresEveryByteThatThePlanNames) {
  for (const bool sharded : {false, true}) {
    const Plan job = plan(3, sharded);
    const Report report = execute(job, {});
    ASSERT_EQ(report.ranks.size(), 3);
    std::array<Bytes, kCategories> all{};
    for (const Buffer& buffer : job.buffers)
      if (buffer.resident) all[static_cast<int>(buffer.category)] += buffer.bytes();
    for (const RankReport& rank : report.ranks) {
      const CategoryBytes& measured = rank.memory.at_peak;
      for (const Category category : {Category::Parameters, Category::OptimizerState})
        EXPECT_EQ(measured[static_cast<int>(category)], all[static_cast<int>(category)]);
      EXPECT_GT(measured[static_cast<int>(Category::Activations)], 0);
      EXPECT_GT(*rank.memory.resident_set_bytes, 0);
      const Buffer& last = job.buffers.back();
      EXPECT_EQ(*rank.memory.peak_allocated_bytes, last.offset + last.bytes());
    }
  }
}

TEST_F(Executor, CollectsOptimizerStateInTheParametersOrder) {
  std::map<std::string, std::vector<float>> whole;
  std::map<std::string, std::vector<float>> sharded;
  ExecuteOptions options;
  options.optimizer_state = &whole;
  execute(plan(2, false), options);
  options.optimizer_state = &sharded;
  execute(plan(2, true), options);
  ASSERT_EQ(whole.count("head.weight.momentum_buffer"), 1);
  const auto& values = whole["head.weight.momentum_buffer"];
  ASSERT_EQ(values.size(), testing::kTwoUnitsVocab * testing::kTwoUnitsChannels);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], sharded["head.weight.momentum_buffer"][i], 1e-6);
}

TEST_F(Executor, StartsFromItsOwnWrittenWeights) {
  Plan job = plan(2, true);
  execute(job, {});
  const std::vector<float> trained = written("head.weight");
  job.job.run.weights = job.job.run.output;
  job.job.run.output = folder_.path("again");
  job.job.run.steps = 0;
  const Report report = execute(job, {});
  EXPECT_TRUE(report.steps.empty());
  const SafeTensors file(folder_.path("again"));
  std::vector<float> values(trained.size());
  read_elements(*file.find("head.weight"), 0, values);
  EXPECT_EQ(values, trained);
}

TEST_F(Executor, PlansOfAnotherDeviceAreRefused) {
  Plan job = plan(1, false);
  job.profile = Profile::Cuda;
  EXPECT_THAT(error_of<InputError>([&] { execute(job, {}); }), HasSubstr("profile cuda; re-plan"));
}

TEST_F(Executor, AProgramWithoutStepsEnds) {
  Plan job = plan(2, true);
  job.program = {{.segment = 0}};
  EXPECT_TRUE(execute(job, {}).steps.empty());
}

TEST_F(Executor, AJobThatDoesNotFitTheMachineIsRefused) {
  Plan job = plan(2, true);
  job.arena.bytes = Bytes{1} << 55;
  EXPECT_THAT(error_of<SystemError>([&] { execute(job, {}); }), HasSubstr("this machine has"));
}

TEST_F(Executor, ABadTokenEndsAllRanksWithItsPosition) {
  TwoUnits tokens = options(3, true);
  std::string content(400, '\0');
  content[2 * 50] = static_cast<char>(testing::kTwoUnitsVocab);
  tokens.tokens = folder_.file("bad.bin", content);
  const std::string error = error_of<InputError>([&] { execute(two_unit_plan(tokens), {}); });
  EXPECT_THAT(error, HasSubstr("bad.bin: token 13 at position 50"));
  EXPECT_THAT(error, HasSubstr("instruction '"));
}

TEST_F(Executor, ErrorsOfTheCallbackEndTheJobAndComeBack) {
  ExecuteOptions options;
  options.on_step = [](const StepReport& step) {
    if (step.step == 2) throw std::logic_error("enough");
  };
  Plan job = plan(2, true);
  job.job.run.steps = 100000;
  EXPECT_THROW(execute(job, options), std::logic_error);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("out/model.safetensors.tmp")));
}

TEST_F(Executor, AnOutputThatCannotBeWrittenFailsBeforeTraining) {
  Plan job = plan(1, false);
  job.job.run.output = folder_.file("occupied", "") + "/out";
  int steps = 0;
  ExecuteOptions options;
  options.on_step = [&](const StepReport&) { ++steps; };
  EXPECT_THAT(error_of<SystemError>([&] { execute(job, options); }), HasSubstr("occupied/out"));
  EXPECT_EQ(steps, 0);
}

}  // namespace
}  // namespace shardplan
