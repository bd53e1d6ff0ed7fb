#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "plans/plan.h"
#include "tests/unit/broken_plan.h"

namespace shardplan {
namespace {

/// Plans of which every operand is where it should be, with numbers that a kernel, a collective or
/// a file would not survive.
class HostilePlan : public testing::BrokenPlan {
 protected:
  const std::string attention = "model.layers.0.self_attn.attention";
  /// An instruction that a right plan has not, after the batch is read.
  void insert(Operation operation, std::vector<View> reads, std::vector<View> writes) {
    Instruction& target = at("read_targets");
    target = {"inserted",       target.stream,     target.phase, -1,
              std::move(reads), std::move(writes), {},           std::move(operation)};
  }
  BufferId add_buffer(Dtype dtype, std::int64_t elems) {
    plan.buffers.push_back({.name = "added", .dtype = dtype, .elems = elems});
    plan.buffers.back().offset = plan.arena.bytes = round_up(plan.arena.bytes, 64);
    plan.arena.bytes += plan.buffers.back().bytes();
    return static_cast<BufferId>(plan.buffers.size()) - 1;
  }
};

TEST_F(HostilePlan, AttentionTilesFitTheirWorkspace) {
  plan = make_plan(
      plan.job =
          [&] {
            Job job = plan.job;
            job.training.sequence_length = 100;  // more than one tile of 64 rows
            return job;
          }(),
      testing::tiny_llama());
  attributes(attention).set(Attribute::BlockRows, 4096);
  expect_fault(attention, "model.layers.0.self_attn.workspace", "where 10000 fit");
}

TEST_F(HostilePlan, AttentionHasTiles) {
  attributes(attention).set(Attribute::BlockRows, 0);
  expect_fault(attention, "", "block_rows");
}

TEST_F(HostilePlan, OnlySomeKernelsTakeAPartOfTheRows) {
  attributes(attention).set(Attribute::Rows, 1);
  expect_fault(attention, "", "attention takes all rows");
  attributes("loss.cross_entropy").set(Attribute::FirstRow, 1);
  expect_fault("loss.cross_entropy", "", "works on rows beyond the ");
}

TEST_F(HostilePlan, TheChunksOfALossTakeItsRowsInOrder) {
  plan.job.training.loss_chunks = 2;
  plan = make_plan(plan.job, testing::tiny_llama());
  std::swap(at("loss.cross_entropy").operation, at("loss.cross_entropy#2").operation);
  expect_fault("loss.cross_entropy", "", "from 8 on, not of 8 from 0 on");
}

TEST_F(HostilePlan, HeadsShareKeys) {
  attributes(attention).set(Attribute::KvHeads, 0);
  expect_fault(attention, "", "do not share 0 keys");
  attributes(attention).set(Attribute::KvHeads, 2);
  expect_fault(attention, "", "9 heads do not share 2 keys evenly");
}

TEST_F(HostilePlan, TokensAreInt32) {
  buffer("tokens.output").dtype = Dtype::UInt8;
  expect_fault("read_tokens", "tokens.output", "is uint8, expected int32");
  expect_fault("model.embed_tokens.embedding", "tokens.output",
               "is uint8, where embedding takes int32");
}

TEST_F(HostilePlan, TheLossIsFloat64) {
  buffer("loss").dtype = Dtype::Float32;
  expect_fault("loss.cross_entropy", "loss", "is float32, where cross_entropy takes float64");
  expect_fault("write_loss", "loss", "is float32, expected float64");
}

TEST_F(HostilePlan, CountsAreWholeNumbersOfTensors) {
  const std::string linear = "model.layers.0.self_attn.q_proj.linear";
  for (const double batch : {-1.0, 0.5, std::ldexp(1.0, 62), std::nan("")}) {
    attributes(linear).set(Attribute::Batch, batch);
    expect_fault(linear, "", "expected a whole number from 0 to 2^32");
  }
  attributes(linear).set(Attribute::Batch, std::ldexp(1.0, 32));
  attributes(linear).set(Attribute::Time, std::ldexp(1.0, 32));
  expect_fault(linear, "model.layers.0.self_attn.q_proj.output", "where 9223372036854775807 fit");
}

TEST_F(HostilePlan, LaunchesHaveElements) {
  Instruction& loss = at("loss.cross_entropy");
  attributes("loss.cross_entropy").set(Attribute::Batch, 0);
  for (auto* views : {&loss.reads, &loss.writes})
    for (View& view : *views)
      if (view.elems > 1) view.elems = 0;
  expect_fault("loss.cross_entropy", "lm_head.output", "without elements");
}

TEST_F(HostilePlan, BroadcastsComeFromARankOfTheGroup) {
  const View loss = at("write_loss").reads[0];
  insert(Broadcast{Group::Shard, 4}, {loss}, {loss});
  expect_fault("inserted", "", "from rank 4 of a group of 4");
}

TEST_F(HostilePlan, SumsAreOverFloats) {
  const View tokens = at("read_tokens").writes[0];
  insert(AllReduce{Group::Shard, 1, 1, {}}, {tokens}, {tokens});
  expect_fault("inserted", "tokens.output", "is int32, expected float32");
}

TEST_F(HostilePlan, CopiesConvertFloatsOnly) {
  const View tokens = at("read_tokens").writes[0];
  insert(Copy{}, {tokens}, {{add_buffer(Dtype::Float32, tokens.elems), 0, tokens.elems}});
  expect_fault("inserted", "tokens.output", "is int32, expected float32");
}

TEST_F(HostilePlan, FillsAreOfFloats) {
  insert(Fill{0}, {}, {{add_buffer(Dtype::Float16, 4), 0, 4}});
  expect_fault("inserted", "added", "is float16, expected float32");
}

TEST_F(HostilePlan, ParametersHaveTheElementsOfTheirShapes) {
  ++plan.units[0].parameters[0].shape[0];
  expect_fault("", plan.buffers[plan.units[0].parameter].name, "its shape another number");
  plan.units[0].parameters[0].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  expect_fault("", plan.buffers[plan.units[0].parameter].name, "its shape another number");
}

TEST_F(HostilePlan, BatchesAreOfTheJobsSize) {
  plan.job.training.micro_batch = 1;
  expect_fault("read_tokens", "tokens.output", "16 elements, where 8 fit");
}

TEST_F(HostilePlan, BatchesAreReadInsideSteps) {
  plan.program.push_back(plan.program[2].body[0]);
  expect_fault("read_tokens", "", "outside the loop over the steps");
}

TEST_F(HostilePlan, AProgramHasOneLoopOverTheSteps) {
  const ProgramItem steps = plan.program[2];
  plan.program = {};
  expect_fault("", "", "0 loops over the steps");
  plan.program = {steps, steps};
  expect_fault("", "", "2 loops over the steps");
  plan.program = {steps};
  plan.program[0].count = 5;
  expect_fault("", "", "0 loops over the steps");
}

TEST_F(HostilePlan, APlanDoesWhatItsJobSays) {
  const Plan right = plan;
  const auto expect_disagreement = [&](const std::string& instruction, const std::string& why,
                                       auto change) {
    plan = right;
    change(plan.job);
    expect_fault(instruction, "", why);
  };
  expect_disagreement("", "the job is DDP",
                      [](Job& job) { job.strategy.sharding = Strategy::Ddp; });
  expect_disagreement("", "the job has 2 micro-steps",
                      [](Job& job) { job.training.gradient_accumulation.steps = 2; });
  expect_disagreement("gradient_norm", "max_norm",
                      [](Job& job) { job.training.clip_grad_norm.reset(); });
  expect_disagreement("root.adam", "beta1", [](Job& job) { job.training.optimizer.beta1 = 0.5; });
  expect_disagreement("root.adam", "not the job's optimizer",
                      [](Job& job) { job.training.optimizer.name = OptimizerJob::Name::Sgd; });
  expect_disagreement("model.norm.rms_norm", "attribute batch is 2, the job says 4", [](Job& job) {
    job.training.micro_batch = 4;
    job.training.sequence_length = 4;
  });
}

TEST_F(HostilePlan, RanksHoldWhatTheUnitsHave) {
  ++plan.classes[0].valid[0];
  expect_fault("", "", "rank 0 holds");
}

TEST_F(HostilePlan, FiguresAreThoseOfThePlan) {
  const Plan right = plan;
  const auto expect_wrong = [&](const std::string& why, auto change) {
    plan = right;
    change();
    expect_fault("", "", why);
  };
  expect_wrong("bytes of arena", [&] { plan.arena.bytes *= 2; });
  expect_wrong("in issue order", [&] { plan.arena.issue_order_bytes = 1; });
  expect_wrong("as the live bound", [&] { plan.arena.live_bound_bytes = 1; });
  expect_wrong("parameters", [&] { plan.parameter_count = 1; });
  expect_wrong("floating-point", [&] { plan.model_flops_per_token = -1; });
}

TEST_F(HostilePlan, ParametersHaveNamesOfTheirOwn) {
  plan.units[0].parameters[0].name = plan.units[1].parameters[0].name;
  expect_fault("", plan.buffers[plan.units[1].parameter].name, "is there twice");
}

TEST_F(HostilePlan, StepsAreNotNested) {
  plan.program[2].body[0].count = ProgramItem::kOncePerStep;
  expect_fault("", "", "inside another loop");
}

TEST_F(HostilePlan, WeightsAreOfTheUnitThatIsNamed) {
  at("write_weights.root").reads = at("write_weights.model.layers.0").reads;
  expect_fault("write_weights.root", "model.layers.0.parameters", "does not hold the weights");
}

TEST_F(HostilePlan, SizesDoNotOverflow) {
  plan.mesh.shard = std::int64_t{1} << 24;
  at("all_gather.root.forward").reads[0].elems = std::int64_t{1} << 52;
  EXPECT_FALSE(verify(plan).empty());
  plan.mesh.shard = 4;
  plan.buffers[0].elems = std::int64_t{1} << 62;
  expect_fault("", plan.buffers[0].name, "expected 0 to 2^53");
}

TEST_F(HostilePlan, WhatIsReadIsNotWrittenElsewhereInItsBytes) {
  Instruction& linear = at("model.layers.0.self_attn.o_proj.linear");
  linear.writes[0] = linear.reads[0];
  expect_fault(linear.name, plan.buffers[linear.reads[0].buffer].name, "while the instruction");
}

TEST_F(HostilePlan, AReduceScatterWritesOutsideWhatItReads) {
  Instruction& reduce = at("reduce_scatter.root");
  reduce.writes[0] = {reduce.reads[0].buffer, 0, reduce.writes[0].elems};
  expect_fault("reduce_scatter.root", "root.unsharded_gradients", "while the instruction");
}

TEST_F(HostilePlan, NothingIsWrittenTwiceByOneInstruction) {
  Instruction& fill = at("zero_state.model.layers.0");
  fill.writes[1] = fill.writes[0];
  expect_fault(fill.name, "model.layers.0.exp_avg", "written twice");
}

TEST_F(HostilePlan, KernelsThatDoNotAddUpAreNotTakenForIt) {
  Instruction& gelu = at("model.layers.0.mlp.swiglu_backward");
  gelu.reads.push_back(gelu.writes[0]);
  expect_fault(gelu.name, plan.buffers[gelu.writes[0].buffer].name, "one operand too many");
}

}  // namespace
}  // namespace shardplan
