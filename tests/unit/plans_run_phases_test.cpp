#include "plans/run_phases.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "planner/planner.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using testing::tiny_job;
using testing::tiny_llama;

/// Names of the phases by instruction.
std::map<std::string, std::string> phases_of(const Plan& plan) {
  const std::vector<InstructionId> order = unroll(plan, 1);
  const std::vector<RunPhases> phases = run_phases(plan);
  EXPECT_EQ(phases.size(), order.size());
  std::map<std::string, std::string> names;
  for (std::size_t p = 0; p < order.size(); ++p)
    for (int phase = 0; phase < kRunPhases; ++phase)
      if (phases[p][phase]) {
        std::string& text = names[plan.instructions[order[p]].name];
        text += (text.empty() ? "" : " ") + std::string(to_string(static_cast<RunPhase>(phase)));
      }
  return names;
}

Plan accumulating_plan(GradientAccumulation::Sync sync) {
  Job job = tiny_job(Strategy::FullShard, 2);
  job.training.gradient_accumulation = {.steps = 3, .sync = sync};
  return make_plan(job, tiny_llama());
}

TEST(RunPhases, AreTheInstructionsOwnAndTheFirstStep) {
  auto phases = phases_of(make_plan(tiny_job(Strategy::FullShard, 2), tiny_llama()));
  EXPECT_EQ(phases["read_weights.root"], "load");
  EXPECT_EQ(phases["zero_state.root"], "init");
  EXPECT_EQ(phases["lm_head.linear"], "first_step forward");
  EXPECT_EQ(phases["lm_head.linear_backward_input"], "first_step backward");
  EXPECT_EQ(phases["root.adam"], "first_step optimizer");
  EXPECT_EQ(phases["write_weights.root"], "save");
}

TEST(RunPhases, MicroStepsAheadOfTheLastAccumulate) {
  auto phases = phases_of(accumulating_plan(GradientAccumulation::Sync::Last));
  EXPECT_EQ(phases["lm_head.linear"], "first_step accumulate");
  EXPECT_EQ(phases["lm_head.linear#2"], "first_step forward");
  EXPECT_EQ(phases["zero_loss"], "first_step optimizer");
}

TEST(RunPhases, PassesThatAreAlikeAccumulateAndAreTheLast) {
  auto phases = phases_of(accumulating_plan(GradientAccumulation::Sync::Every));
  EXPECT_EQ(phases["lm_head.linear"], "first_step forward accumulate");
}

TEST(RunPhases, AFirstStepOfItsOwnIsNoSteadyOne) {
  Plan plan = make_plan(tiny_job(Strategy::FullShard, 2), tiny_llama());
  // Its micro-step once ahead of the loop, and its optimizer.
  const ProgramItem steps = plan.program.at(2);
  plan.program.insert(plan.program.begin() + 2, steps.body.begin(), steps.body.end());
  auto phases = phases_of(plan);
  EXPECT_EQ(phases["lm_head.linear"], "first_step forward");  // of two positions
  EXPECT_EQ(phases["read_weights.root"], "load");
  const std::vector<RunPhases> all = run_phases(plan);
  for (const RunPhases& one : all)
    EXPECT_EQ(one.count(), 1U);
}

}  // namespace
}  // namespace shardplan
