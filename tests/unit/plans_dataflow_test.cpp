#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "plans/plan.h"
#include "tests/unit/broken_plan.h"

namespace shardplan {
namespace {

/// Plans whose every access is ordered and of the right size, and that compute something else.
class Dataflow : public testing::BrokenPlan {
 protected:
  const std::string incomplete = "does not sum one term of every use";
  const std::string not_whole = "is not the whole gradient";
  const std::string not_forwards = "is not what forward computed with";

  /// A second issue of an instruction, right behind the first.
  void repeat(const std::string& name) {
    Instruction copy = at(name);
    copy.name += "#2";
    const auto id = static_cast<InstructionId>(&at(name) - plan.instructions.data());
    plan.instructions.insert(plan.instructions.begin() + id + 1, std::move(copy));
    for (Instruction& instruction : plan.instructions)
      for (Wait& wait : instruction.after)
        wait.id += wait.id > id ? 1 : 0;
    for (Segment& segment : plan.segments) {
      segment.first += segment.first > id ? 1 : 0;
      segment.last += segment.last > id ? 1 : 0;
    }
  }
};

TEST_F(Dataflow, CatchesSwappedGradients) {
  std::swap(at("model.layers.0.adam").reads[0], at("model.layers.1.adam").reads[0]);
  expect_fault("model.layers.0.adam", "model.layers.1.gradients", incomplete);
}

TEST_F(Dataflow, CatchesAStateOfOtherParameters) {
  Instruction& adam = at("model.layers.0.adam");
  adam.reads[3] = adam.writes[1] = at("model.layers.1.adam").writes[1];
  expect_fault("model.layers.1.adam", "model.layers.1.exp_avg", "not the state of these");
}

TEST_F(Dataflow, CatchesStatesInAnotherOrderThanTheirReads) {
  Instruction& adam = at("model.layers.0.adam");
  std::swap(adam.reads[3], adam.reads[4]);
  expect_fault("model.layers.0.adam", "model.layers.0.parameters", "states in their order");
}

TEST_F(Dataflow, CatchesAnUpdateOfHalfTheParameters) {
  Instruction& adam = at("model.layers.0.adam");
  for (auto* views : {&adam.reads, &adam.writes})
    for (View& view : *views)
      if (view.elems > 1) view.elems /= 2;
  expect_fault("model.layers.0.adam", "model.layers.0.parameters", "updated in part");
}

TEST_F(Dataflow, CatchesAnOverwrittenTermOfATiedGradient) {
  plan = make_plan(testing::tiny_job(Strategy::FullShard, 4), testing::tiny_llama({.tied = true}));
  at("model.embed_tokens.embedding_backward").reads.pop_back();
  expect_fault("root.adam", "root.gradients", incomplete);
}

TEST_F(Dataflow, CatchesATermThatIsAddedTwice) {
  plan = make_plan(testing::tiny_job(Strategy::FullShard, 4), testing::tiny_llama({.tied = true}));
  repeat("model.embed_tokens.embedding_backward");
  expect_fault("root.adam", "root.gradients", incomplete);
}

TEST_F(Dataflow, CatchesAResidualThatIsNotAdded) {
  drop("model.layers.1.add");
  EXPECT_FALSE(verify(plan).empty());
}

TEST_F(Dataflow, CatchesAResidualThatIsAddedTwice) {
  repeat("model.layers.1.add");
  EXPECT_FALSE(verify(plan).empty());
}

TEST_F(Dataflow, CatchesSwappedOperandsOfForward) {
  Instruction& product = at("model.layers.0.mlp.swiglu");
  std::swap(product.reads[0], product.reads[1]);
  expect_fault("model.layers.0.mlp.swiglu_backward", plan.buffers[product.reads[1].buffer].name,
               not_forwards);
}

TEST_F(Dataflow, CatchesSwappedResultsOfBackward) {
  Instruction& product = at("model.layers.0.mlp.swiglu_backward");
  std::swap(product.writes[0], product.writes[1]);
  expect_fault("model.layers.0.mlp.up_proj.linear_backward_input",
               "model.layers.0.backward.unsharded_parameters", not_forwards);
}

TEST_F(Dataflow, CatchesOtherAttributesInBackward) {
  attributes("model.layers.0.self_attn.attention_backward").set(Attribute::Scale, 0.5);
  EXPECT_FALSE(verify(plan).empty());
}

TEST_F(Dataflow, CatchesARotationThatIsLeftOut) {
  drop("model.layers.0.self_attn.rope");
  expect_fault("model.layers.0.self_attn.rope_backward#2", "model.layers.0.self_attn.gradient#2",
               not_whole);
}

TEST_F(Dataflow, CatchesANormThatIsNotSummedOverTheShards) {
  drop("all_reduce.gradient_norm");
  expect_fault("gradient_norm", "gradient_sum_squares", "over all ranks that own parts");
}

TEST_F(Dataflow, CatchesANormThatLacksAGradient) {
  at("sum_squares").reads.pop_back();
  EXPECT_FALSE(verify(plan).empty());
}

TEST_F(Dataflow, CatchesANormThatCountsAGradientTwice) {
  at("sum_squares").reads.push_back(at("sum_squares").reads[0]);
  expect_fault("sum_squares", "gradient_sum_squares", "counts a gradient twice");
}

TEST_F(Dataflow, CatchesTheNormAsFactor) {
  std::swap(at("gradient_norm").writes[0], at("gradient_norm").writes[1]);
  expect_fault("root.adam", "clip_coefficient", "not made from the norm");
}

TEST_F(Dataflow, CatchesALossOfOneRank) {
  drop("all_reduce.loss");
  expect_fault("write_loss", "loss", "not the loss of the step");
}

TEST_F(Dataflow, CatchesAStepThatReportsNothing) {
  drop("write_loss");
  expect_fault("", "", "reports 0 losses");
  drop("write_gradient_norm");
  expect_fault("", "", "reports 0 gradient norms");
}

TEST_F(Dataflow, CatchesWeightsThatAreNotSaved) {
  drop("write_weights.root");
  expect_fault("", "root.parameters", "is saved 0 times");
}

TEST_F(Dataflow, CatchesTokensOfAnotherMicroBatch) {
  repeat("read_tokens");
  expect_fault("loss.cross_entropy", "loss", "different micro-batches");
}

TEST_F(Dataflow, CatchesMoreBatchesThanMicroSteps) {
  repeat("read_targets");
  expect_fault("", "", "a step reads 2 batches, the job has 1 micro-steps");
}

TEST_F(Dataflow, CatchesPaddingThatIsNotZero) {
  drop("zero_padding.root");
  EXPECT_FALSE(verify(plan).empty());
}

TEST_F(Dataflow, CatchesPaddingThatReachesIntoAGradient) {
  Instruction& padding = at("zero_padding.root");
  padding.writes[0].at -= 1;
  padding.writes[0].elems += 1;
  expect_fault("root.adam", "root.gradients", incomplete);
}

TEST_F(Dataflow, DoesNotRelyOnThrottles) {
  for (Wait& wait : at("model.layers.0.input_layernorm.rms_norm").after)
    wait.why = Why::Throttle;
  expect_fault("model.layers.0.input_layernorm.rms_norm",
               "model.layers.0.forward.unsharded_parameters", "nothing orders the two");
}

}  // namespace
}  // namespace shardplan
