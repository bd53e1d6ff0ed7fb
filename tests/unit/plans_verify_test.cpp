#include "plans/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/planner.h"
#include "tests/models/tiny_models.h"
#include "tests/unit/broken_plan.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;
using testing::tiny_job;
using testing::tiny_llama;

class Verify : public testing::BrokenPlan {};

TEST_F(Verify, FindsNothingInARightPlan) { EXPECT_TRUE(verify(plan).empty()); }

TEST_F(Verify, CatchesAMissingWait) {
  at("model.layers.0.input_layernorm.rms_norm").after.clear();
  expect_fault("model.layers.0.input_layernorm.rms_norm",
               "model.layers.0.forward.unsharded_parameters", "nothing orders the two");
}

TEST_F(Verify, CatchesAWaitMissingAcrossTheBackEdge) {
  auto& waits = at("all_gather.root.forward").after;
  std::erase_if(waits, [&](const Wait& wait) {
    return plan.instructions[wait.id].phase == Phase::Optimizer;
  });
  expect_fault("all_gather.root.forward", "root.parameters", "nothing orders the two");
}

TEST_F(Verify, CatchesADroppedGather) {
  drop("all_gather.model.layers.1.forward");
  expect_fault("model.layers.1.input_layernorm.rms_norm",
               "model.layers.1.forward.unsharded_parameters", "before anything wrote it");
}

TEST_F(Verify, CatchesADroppedReduction) {
  drop("reduce_scatter.model.layers.1");
  expect_fault("sum_squares", "model.layers.1.gradients", "its bytes hold");
}

TEST_F(Verify, CatchesAReductionThatSaysOtherwise) {
  auto& contributes = std::get<ReduceScatter>(at("reduce_scatter.root").operation).contributes;
  contributes.clear();
  expect_fault("reduce_scatter.root", "root.unsharded_gradients", "says that it makes final");
  contributes = {0, 1};
  expect_fault("reduce_scatter.root", "root.unsharded_gradients", "says that it makes final");
}

TEST_F(Verify, CatchesASecondReduction) {
  plan = make_plan(tiny_job(Strategy::NoShard, 2), tiny_llama());
  const Instruction reduction = at("all_reduce.root");
  at("zero_padding.root") = reduction;
  expect_fault("all_reduce.root", "root.gradients", "a second time over the same ranks");
}

TEST_F(Verify, CatchesAGradientThatIsNeverComputed) {
  // Its bytes are written, but by the fill of the padding.
  const View gradient = at("model.norm.rms_norm_backward").writes[1];
  at("zero_padding.root").writes.push_back(gradient);
  at("model.norm.rms_norm_backward").writes[1] = at("model.layers.1.mlp.swiglu_backward").writes[0];
  at("model.norm.rms_norm_backward").writes[1].elems = gradient.elems;
  expect_fault("root.adam", "root.gradients", "does not sum one term of every use");
}

TEST_F(Verify, CatchesASumWhereAMeanBelongs) {
  std::get<ReduceScatter>(at("reduce_scatter.root").operation).post_scale = 1;
  expect_fault("reduce_scatter.root", "root.unsharded_gradients", "not averaged");
}

TEST_F(Verify, CatchesOverlappingBuffers) {
  buffer("model.layers.0.exp_avg").offset = buffer("model.layers.1.exp_avg").offset;
  expect_fault("model.layers.0.adam", "model.layers.0.exp_avg", "hold model.layers.1.exp_avg");
}

TEST_F(Verify, CatchesBytesThatAnotherBufferTookOver) {
  // The first block's input is needed until backward; the last block's product is written
  // meanwhile.
  buffer("model.layers.1.mlp.output").offset = buffer("model.embed_tokens.output").offset;
  expect_fault("model.layers.0.input_layernorm.rms_norm_backward", "model.embed_tokens.output",
               "its bytes hold");
}

TEST_F(Verify, CatchesABufferOutsideTheArena) {
  buffer("root.parameters").offset = plan.arena.bytes;
  expect_fault("", "root.parameters", "not inside the arena");
}

TEST_F(Verify, CatchesAnOperandOutsideItsBuffer) {
  at("model.norm.rms_norm").reads[1].at = 1'000'000;
  expect_fault("model.norm.rms_norm", "root.forward.unsharded_parameters", "outside its");
}

TEST_F(Verify, CatchesAResizedOperand) {
  at("model.layers.0.mlp.up_proj.linear").reads[1].elems -= 1;
  expect_fault("model.layers.0.mlp.up_proj.linear", "model.layers.0.forward.unsharded_parameters",
               "where 7830 fit");
}

TEST_F(Verify, CatchesACollectiveOfTheWrongSize) {
  at("all_gather.root.forward").writes[0].elems -= 4;
  expect_fault("all_gather.root.forward", "root.forward.unsharded_parameters", "where");
}

TEST_F(Verify, CatchesACollectiveOnTheHostStream) {
  at("all_gather.root.forward").stream = Stream::Host;
  expect_fault("all_gather.root.forward", "", "on the host stream");
}

TEST_F(Verify, CatchesAMissingOptimizerStep) {
  drop("model.layers.1.adam");
  expect_fault("", "model.layers.1.parameters", "updated 0 times in a step");
}

TEST_F(Verify, CatchesAnOptimizerStepOnAnotherUnitsParameters) {
  at("model.layers.1.adam").unit = 1;
  expect_fault("model.layers.1.adam", "", "does not update the parameters of its unit");
}

TEST_F(Verify, CatchesAnInstructionOnAnotherStream) {
  at("reduce_scatter.model.layers.0").stream = Stream::AllGather;
  EXPECT_FALSE(verify(plan).empty());
}

TEST_F(Verify, CatchesAWaitForAnUnknownInstruction) {
  at("root.adam").after.push_back({1'000'000, Why::Data});
  expect_fault("root.adam", "", "does not exist");
}

TEST_F(Verify, CatchesASegmentOutsideThePlan) {
  plan.segments[0].last = 1'000'000;
  EXPECT_FALSE(verify(plan).empty());
}

TEST_F(Verify, CatchesGradientsThatGrowAfterTheirReduction) {
  // The embedding adds to the tied gradient; reduce before it does.
  plan = make_plan(tiny_job(Strategy::NoShard, 2), tiny_llama({.tied = true}));
  const auto reduction =
      std::ranges::find(plan.instructions, "all_reduce.root", &Instruction::name);
  const auto embedding = std::ranges::find(
      plan.instructions, "model.embed_tokens.embedding_backward", &Instruction::name);
  std::swap(*reduction, *embedding);
  EXPECT_FALSE(verify(plan).empty());
}

TEST(VerifyAccumulation, CatchesWhatIsSummedWrongly) {
  using Sync = GradientAccumulation::Sync;
  for (const Sync sync : {Sync::Every, Sync::Last}) {
    Job job = tiny_job(Strategy::FullShard, 2);
    job.training.gradient_accumulation = {3, sync};
    const Plan right = make_plan(job, tiny_llama({.layers = 1}));
    ASSERT_TRUE(verify(right).empty());
    // Without its last read, a launch overwrites where it added, or forgets what it adds.
    for (std::size_t i = 0; i < right.instructions.size(); ++i) {
      const Instruction& instruction = right.instructions[i];
      const bool adds =
          instruction.phase == Phase::Backward && !instruction.reads.empty() &&
          right.buffers[instruction.writes[0].buffer].category != Category::Temporaries &&
          instruction.reads.back() == instruction.writes.back() &&
          std::holds_alternative<Compute>(instruction.operation);
      if (!adds) continue;
      Plan wrong = right;
      wrong.instructions[i].reads.pop_back();
      EXPECT_FALSE(verify(wrong).empty()) << instruction.name;
    }
    Plan unzeroed = right;
    const auto zero =
        std::ranges::find(unzeroed.instructions, "zero_gradients.root", &Instruction::name);
    ASSERT_NE(zero, unzeroed.instructions.end());
    zero->writes[0].elems = 1;
    EXPECT_FALSE(verify(unzeroed).empty());
  }
}

class EveryWait : public ::testing::TestWithParam<Strategy> {};

TEST_P(EveryWait, IsNeeded) {
  Plan plan = make_plan(tiny_job(GetParam(), 4), tiny_llama({.layers = 4, .tied = true}));
  int waits = 0;
  for (std::size_t i = 0; i < plan.instructions.size(); ++i)
    for (std::size_t w = 0; w < plan.instructions[i].after.size(); ++w) {
      const std::vector<Wait> saved = plan.instructions[i].after;
      plan.instructions[i].after.erase(plan.instructions[i].after.begin() + w);
      EXPECT_FALSE(verify(plan).empty())
          << plan.instructions[i].name << " without waiting for "
          << plan.instructions[saved[w].id].name << " (" << to_string(saved[w].why) << ")";
      plan.instructions[i].after = saved;
      ++waits;
    }
  EXPECT_GE(waits, 10);
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryWait,
                         ::testing::Values(Strategy::FullShard, Strategy::ShardGradOp,
                                           Strategy::NoShard, Strategy::Ddp),
                         [](const auto& strategy) {
                           return std::string(to_string(strategy.param));
                         });

}  // namespace
}  // namespace shardplan
