#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/lora.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "plans/verify.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using Names = std::vector<std::string>;

Job torch_job(Engine engine, Strategy sharding, int ranks = 4) {
  Job job = testing::tiny_job(sharding, ranks);
  job.strategy.engine = engine;
  job.strategy.profile = Profile::TorchEager;
  return job;
}

Plan plan_of(const Job& job, int layers = 3) {
  Plan plan = make_plan(job, testing::tiny_llama({.layers = layers}));
  const std::vector<Fault> faults = verify(plan);
  EXPECT_TRUE(faults.empty()) << faults[0].instruction << " | " << faults[0].buffer << " | "
                              << faults[0].why;
  return plan;
}

/// Names in a segment that `wanted` says; in issue order.
template <typename Wanted>
Names names_in(const Plan& plan, const std::string& segment, Wanted wanted) {
  const auto found = std::ranges::find(plan.segments, segment, &Segment::name);
  Names names;
  if (found == plan.segments.end()) return names;
  for (InstructionId id = found->first; id < found->last; ++id)
    if (wanted(plan.instructions[id])) names.push_back(plan.instructions[id].name);
  return names;
}

bool is_collective(const Instruction& instruction) {
  return std::holds_alternative<AllGather>(instruction.operation) ||
         std::holds_alternative<ReduceScatter>(instruction.operation) ||
         std::holds_alternative<AllReduce>(instruction.operation);
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::ptrdiff_t place(const Names& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  EXPECT_NE(found, names.end()) << name;
  return found - names.begin();
}

Names all_in(const Plan& plan, const std::string& segment) {
  return names_in(plan, segment, [](const Instruction&) { return true; });
}

/// Short forms: "AG model.layers.0", "RS root".
Names collectives_in(const Plan& plan, const std::string& segment) {
  Names short_names;
  const auto found = std::ranges::find(plan.segments, segment, &Segment::name);
  for (InstructionId id = found->first; id < found->last; ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (!is_collective(instruction)) continue;
    const bool gathers = std::holds_alternative<AllGather>(instruction.operation);
    const bool scatters = std::holds_alternative<ReduceScatter>(instruction.operation);
    const std::string unit = plan.units[instruction.unit].name;
    short_names.push_back((gathers    ? "AG "
                           : scatters ? "RS "
                                      : "AR ") +
                          unit.substr(unit.rfind('.') + 1));
  }
  return short_names;
}

TEST(Fsdp2, GathersTheNextBlockBeforeTheGradientsOfTheLastAreReduced) {
  const Plan plan = plan_of(torch_job(Engine::Fsdp2, Strategy::FullShard));
  EXPECT_EQ(collectives_in(plan, "micro.last"),
            (Names{"AG root", "AG 0", "AG 1", "AG 2", "AG 2", "AG 1", "RS 2", "AG 0", "RS 1",
                   "RS 0", "RS root"}));
}

TEST(Fsdp2, AGatherOutputOutlivesTheCopyOutOfTheNext) {
  const Names names = all_in(plan_of(torch_job(Engine::Fsdp2, Strategy::FullShard)), "micro.last");
  const auto freed = place(names, "free.model.layers.0.all_gather.output");
  EXPECT_GT(freed, place(names, "model.layers.1.all_gather.copy_out"));
  EXPECT_LT(freed, place(names, "alloc.model.layers.2.all_gather.output"));
}

TEST(Fsdp2, TheReduceScatterInputLivesUntilTheNext) {
  const Names names = all_in(plan_of(torch_job(Engine::Fsdp2, Strategy::FullShard)), "micro.last");
  const auto freed = place(names, "free.model.layers.2.reduce_scatter.input");
  EXPECT_GT(freed, place(names, "model.layers.2.reduce_scatter"));
  EXPECT_EQ(freed + 1, place(names, "alloc.model.layers.1.reduce_scatter.input"));
}

TEST(Fsdp2, WithoutReshardingBackwardGathersNothing) {
  const Plan plan = plan_of(torch_job(Engine::Fsdp2, Strategy::ShardGradOp));
  EXPECT_EQ(collectives_in(plan, "micro.last"),
            (Names{"AG root", "AG 0", "AG 1", "AG 2", "RS 2", "RS 1", "RS 0", "RS root"}));
}

TEST(Fsdp2, UnreducedGradientsAreKeptOnceInTheReduceDtype) {
  Job job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  job.strategy.mixed_precision = MixedPrecision{.param = Dtype::BFloat16};
  job.training.gradient_accumulation = {3, GradientAccumulation::Sync::Last};
  const Plan plan = plan_of(job);
  const auto accumulated = [](const Instruction& instruction) {
    return instruction.name.starts_with("alloc.") &&
           ends_with(instruction.name, ".grad.accumulated");
  };
  EXPECT_EQ(names_in(plan, "micro.first", accumulated).size(), 9u * 3 + 3);
  EXPECT_TRUE(names_in(plan, "micro", accumulated).empty());
  EXPECT_TRUE(names_in(plan, "micro", is_collective).size() > 0);  // gathers
}

TEST(Fsdp2, HybridShardingReducesOverReplicasToo) {
  Job job = torch_job(Engine::Fsdp2, Strategy::HybridShard, 4);
  job.cluster.nodes = 2;
  const Names names = collectives_in(plan_of(job, 1), "micro.last");
  EXPECT_EQ(names, (Names{"AG root", "AG 0", "AG 0", "RS 0", "AR 0", "RS root", "AR root"}));
}

TEST(Fsdp1, ReducesOneUnitLaterWhereForwardPrefetches) {
  Job job = torch_job(Engine::Fsdp1, Strategy::FullShard);
  const Names first{"AG root", "AG 0", "AG 1", "AG 2", "AG 2",   "AG 1",
                    "RS 2",    "AG 0", "RS 1", "RS 0", "RS root"};
  const Names later{"AG root", "AG 0", "AG 1", "AG 2", "AG 2",   "AG 1",
                    "AG 0",    "RS 2", "RS 1", "RS 0", "RS root"};
  EXPECT_EQ(collectives_in(plan_of(job), "micro.last#2"), first);
  job.strategy.forward_prefetch = 1;
  const Plan plan = plan_of(job);
  EXPECT_EQ(collectives_in(plan, "micro.last"), first);  // the order is not known yet
  EXPECT_EQ(collectives_in(plan, "micro.last#2"), later);
}

TEST(Fsdp1, BlocksTheHostBehindTwoFreedUnits) {
  Job job = torch_job(Engine::Fsdp1, Strategy::FullShard);
  const auto waits = [](const Instruction& instruction) {
    return std::holds_alternative<HostWait>(instruction.operation);
  };
  EXPECT_FALSE(names_in(plan_of(job), "micro.last", waits).empty());
  job.strategy.limit_all_gathers = false;
  EXPECT_TRUE(names_in(plan_of(job), "micro.last", waits).empty());
}

TEST(Fsdp1, GradientsOutliveZeroGradWithOriginalParameters) {
  Job job = torch_job(Engine::Fsdp1, Strategy::FullShard);
  const auto frees = [](const Instruction& instruction) {
    return std::holds_alternative<Free>(instruction.operation);
  };
  job.strategy.use_orig_params = true;
  EXPECT_TRUE(names_in(plan_of(job), "zero_grad#2", frees).empty());
  job.strategy.use_orig_params = false;
  EXPECT_EQ(names_in(plan_of(job), "zero_grad#2", frees).size(), 4u);
}

TEST(Ddp, TheFirstStepHasOneBucketAndTheNextMany) {
  Job job = torch_job(Engine::Ddp, Strategy::Ddp);
  job.strategy.ddp.bucket_cap_mb = 0.01;
  const Plan plan = plan_of(job);
  EXPECT_EQ(names_in(plan, "micro.last", is_collective).size(), 1u);
  EXPECT_GT(names_in(plan, "micro.last#2", is_collective).size(), 3u);
}

TEST(Ddp, GradientsLiveBesideTheirBucketsOrInThem) {
  Job job = torch_job(Engine::Ddp, Strategy::Ddp);
  const auto freed = [](const Instruction& instruction) {
    return std::holds_alternative<Free>(instruction.operation);
  };
  EXPECT_FALSE(names_in(plan_of(job), "zero_grad#2", freed).empty());
  job.strategy.ddp.gradient_as_bucket_view = true;
  EXPECT_TRUE(names_in(plan_of(job), "zero_grad#2", freed).empty());
}

TEST(Replicate, AllReducesWithoutGathers) {
  const Plan plan = plan_of(torch_job(Engine::Replicate, Strategy::NoShard));
  EXPECT_EQ(collectives_in(plan, "micro.last"), (Names{"AR 2", "AR 1", "AR 0", "AR root"}));
}

/// How often the last micro-step launches it.
std::ptrdiff_t launches(const Plan& plan, const std::string& name) {
  return std::ranges::count_if(all_in(plan, "micro.last"), [&](const std::string& one) {
    return one == name || one.starts_with(name + "#");
  });
}

TEST(Checkpointing, ComputesNothingAgainThatBackwardDoesNotNeed) {
  Job job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  job.training.activation_checkpointing.kind = ActivationCheckpointing::Kind::Full;
  const Plan plan = plan_of(job);
  EXPECT_EQ(launches(plan, "model.layers.1.mlp.up_proj.mm"), 2);
  EXPECT_EQ(launches(plan, "model.layers.1.mlp.down_proj.mm"), 1);
}

TEST(Checkpointing, SelectiveComputesOnlyTheKindsNamedAgain) {
  Job job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  job.training.activation_checkpointing = {ActivationCheckpointing::Kind::Selective,
                                           {OperatorKind::SwiGlu}};
  const Plan plan = plan_of(job);
  EXPECT_EQ(launches(plan, "model.layers.1.mlp.up_proj.mm"), 1);
  EXPECT_EQ(launches(plan, "model.layers.1.self_attn.attention"), 1);
  EXPECT_EQ(launches(plan, "model.layers.1.mlp.silu"), 2);
  EXPECT_EQ(launches(plan, "model.layers.1.input_layernorm.pow"), 1);
}

TEST(Checkpointing, SelectiveOfEveryKindIsFull) {
  Job job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  job.training.activation_checkpointing.kind = ActivationCheckpointing::Kind::Full;
  const Names full = all_in(plan_of(job), "micro.last");
  using enum OperatorKind;
  job.training.activation_checkpointing = {ActivationCheckpointing::Kind::Selective,
                                           {RmsNorm, Linear, Rope, Attention, SwiGlu, Add}};
  EXPECT_EQ(all_in(plan_of(job), "micro.last"), full);
}

TEST(LossInChunks, MakesEveryChunkOfTheLogitsTwiceAndKeepsNone) {
  Job job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  job.training.loss_chunks = 4;
  const Plan plan = plan_of(job);
  EXPECT_EQ(launches(plan, "lm_head.mm"), 8);
  EXPECT_EQ(launches(plan, "lm_head.mm.backward_weight"), 4);
}

TEST(Adapters, FrozenWeightsHaveNoGradientsAndSaveNoInputs) {
  const ModelGraph base = testing::tiny_llama({.layers = 2});
  ModelGraph graph = base;
  for (Parameter& parameter : graph.parameters)
    parameter.trainable = false;
  graph = with_lora(graph, {.rank = 2, .targets = {"q_proj"}});
  const Plan plan = make_plan(torch_job(Engine::Fsdp2, Strategy::FullShard), graph);
  EXPECT_TRUE(verify(plan).empty());
  EXPECT_EQ(launches(plan, "model.layers.1.self_attn.q_proj.mm.backward_weight"), 0);
  EXPECT_EQ(launches(plan, "model.layers.1.self_attn.q_proj.lora_A.mm.backward_weight"), 1);
  EXPECT_EQ(collectives_in(plan, "micro.last").back(), "RS 0");
  EXPECT_EQ(launches(plan, "model.layers.0.mlp.silu.backward"), 1);
  EXPECT_EQ(launches(plan, "model.layers.0.self_attn.k_proj.mm.backward_input"), 0);
}

TEST(Autocast, CastsEveryWeightOnceAndKeepsGradientsWide) {
  Job job = torch_job(Engine::Ddp, Strategy::Ddp);
  job.strategy.mixed_precision = MixedPrecision{.param = Dtype::BFloat16};
  const Plan plan = plan_of(job);
  EXPECT_EQ(launches(plan, "model.layers.1.mlp.up_proj.to"), 2);  // of the input and the weight
  const auto gradient =
      std::ranges::find(plan.buffers, "model.layers.1.mlp.up_proj.weight.grad", &Buffer::name);
  ASSERT_NE(gradient, plan.buffers.end());
  EXPECT_EQ(gradient->dtype, Dtype::BFloat16);
  const auto wide = std::find_if(gradient + 1, plan.buffers.end(), [&](const Buffer& buffer) {
    return buffer.name.starts_with(gradient->name);
  });
  ASSERT_NE(wide, plan.buffers.end());
  EXPECT_EQ(wide->dtype, Dtype::Float32);
}

TEST(Optimizer, MakesItsStateInTheFirstStep) {
  const Plan plan = plan_of(torch_job(Engine::Fsdp2, Strategy::FullShard));
  const auto makes_state = [&](const Instruction& instruction) {
    return std::holds_alternative<Alloc>(instruction.operation) &&
           plan.buffers[instruction.writes[0].buffer].category == Category::OptimizerState;
  };
  EXPECT_FALSE(names_in(plan, "optimizer.first", makes_state).empty());
  EXPECT_TRUE(names_in(plan, "optimizer", makes_state).empty());
}

TEST(TorchEngines, CompileFusesWhatLiesBetweenProductsAndNothingElse) {
  Job job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  const Plan eager = make_plan(job, testing::tiny_llama({}));
  job.strategy.profile = Profile::TorchCompile;
  const Plan compiled = make_plan(job, testing::tiny_llama({}));
  ASSERT_EQ(compiled.instructions.size(), eager.instructions.size());
  int fused = 0;
  for (const Instruction& instruction : compiled.instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.operation);
    if (compute == nullptr || !compute->attributes.has(Attribute::Fused)) continue;
    ++fused;
    EXPECT_EQ(compute->kernel, Kernel::Elementwise);
    EXPECT_TRUE(instruction.phase == Phase::Forward || instruction.phase == Phase::Backward);
  }
  EXPECT_GT(fused, 10);
}

/// Bytes of activations that are alive where backward begins, of a model with so many blocks.
Bytes kept_for_backward(const Job& job, int layers) {
  const Plan plan =
      make_plan(job, testing::tiny_llama(
                         {.layers = layers, .channels = 64, .heads = 8, .kv_heads = 2, .ffn = 96}));
  EXPECT_TRUE(verify(plan).empty());
  const auto found = std::ranges::find(plan.segments, "micro.last", &Segment::name);
  Bytes bytes = 0;
  for (InstructionId id = found->first; id < found->last; ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.phase == Phase::Backward) break;
    const bool frees = std::holds_alternative<Free>(instruction.operation);
    if (!frees && !std::holds_alternative<Alloc>(instruction.operation)) continue;
    const Buffer& buffer = plan.buffers[instruction.writes.front().buffer];
    if (buffer.category == Category::Activations) bytes += (frees ? -1 : 1) * buffer.bytes(0);
  }
  return bytes;
}

/// What AOTAutograd's partitioner keeps of a block (shared/research/peak_memory.md, section 4: seen
/// with torch 2.11), in float32: 64 channels, 8 heads of 8, 2 of keys and values, 96 in between.
TEST(TorchCompile, KeepsWhatProductsReadAndWhatTheOthersAreComputedFrom) {
  Job job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  job.strategy.profile = Profile::TorchCompile;
  const auto kept_of_a_block = [&] {
    return kept_for_backward(job, 3) - kept_for_backward(job, 2);
  };
  constexpr Bytes kTokens = 16;
  constexpr Bytes kLogSumExp = 4 * 8 * kTokens + 24;  // and attention's random state
  // Input, both norms, o_proj; q and attention; k and v; gate, up and their product.
  EXPECT_EQ(kept_of_a_block(), 4 * kTokens * (4 * 64 + 2 * 64 + 2 * 16 + 3 * 96) + kLogSumExp);
  job.training.activation_checkpointing = {
      ActivationCheckpointing::Kind::Selective,
      {OperatorKind::RmsNorm, OperatorKind::Rope, OperatorKind::SwiGlu, OperatorKind::Add},
      {OperatorKind::Linear}};
  // Input, q and attention, v, gate; of down_proj, kept by name, nobody needs the result.
  EXPECT_EQ(kept_of_a_block(), 4 * kTokens * (64 + 2 * 64 + 16 + 96) + kLogSumExp);
  job.training.activation_checkpointing = {ActivationCheckpointing::Kind::Full};
  EXPECT_EQ(kept_of_a_block(), 4 * kTokens * 64);
}

TEST(Fsdp2, OffloadsShardsGradientsAndStateToTheHost) {
  for (const int ranks : {1, 4}) {
    Job job = torch_job(Engine::Fsdp2, Strategy::FullShard, ranks);
    job.strategy.cpu_offload.params = true;
    job.strategy.mixed_precision = {.param = Dtype::BFloat16};
    job.training.gradient_accumulation.steps = 3;
    const Plan plan = plan_of(job);
    for (const Buffer& buffer : plan.buffers) {
      if (buffer.category == Category::Parameters || buffer.category == Category::OptimizerState) {
        EXPECT_NE(buffer.space, Space::Device) << buffer.name;
      }
    }
  }
}

TEST(TorchEngines, RefuseByNameWhatTheyDoNotModel) {
  Job job = torch_job(Engine::Fsdp2, Strategy::Ddp);
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
  job = torch_job(Engine::DeepSpeed, Strategy::FullShard);
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
  job = torch_job(Engine::Fsdp1, Strategy::FullShard);
  job.strategy.cpu_offload.params = true;
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
  job = torch_job(Engine::Fsdp2, Strategy::FullShard);
  job.strategy.profile = Profile::Cuda;
  EXPECT_THROW(make_plan(job, testing::tiny_llama({})), InputError);
}

}  // namespace
}  // namespace shardplan
