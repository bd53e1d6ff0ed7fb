#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "planner/passes/layout.h"
#include "planner/planner.h"
#include "planner/trainable.h"
#include "plans/error.h"
#include "plans/verify.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using testing::tiny_job;
using testing::tiny_llama;

std::vector<std::string> unit_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const Unit& unit : plan.units)
    names.push_back(unit.name);
  return names;
}

/// Real elements of a parameter on each rank.
std::vector<std::int64_t> elements_per_rank(const Plan& plan, const std::string& name) {
  std::vector<std::int64_t> counts(plan.mesh.shard, 0);
  for (const Unit& unit : plan.units)
    for (const UnitParameter& parameter : unit.parameters)
      for (std::int64_t rank = 0; parameter.name == name && rank < plan.mesh.shard; ++rank) {
        const std::int64_t begin = std::max(parameter.at, rank * unit.shard_elems);
        const std::int64_t end =
            std::min(parameter.at + parameter.elems, (rank + 1) * unit.shard_elems);
        counts[rank] = std::max<std::int64_t>(0, end - begin);
      }
  return counts;
}

TEST(Wrap, OneUnitPerBlockAndARootForTheRest) {
  const Plan plan = make_plan(tiny_job(Strategy::FullShard, 2), tiny_llama());
  EXPECT_THAT(unit_names(plan), ElementsAre("root", "model.layers.0", "model.layers.1"));
  EXPECT_EQ(plan.units[0].parameters.size(), 3U);  // embedding, final norm, head
  EXPECT_EQ(plan.units[1].parameters.size(), 9U);
}

TEST(Wrap, TiedWeightBelongsToTheUnitThatContainsAllItsUsers) {
  Job job = tiny_job(Strategy::FullShard, 2);
  job.strategy.wrap = {.kind = WrapPolicy::Kind::Modules, .names = {"model.layers.0"}};
  ModelGraph graph = tiny_llama({.layers = 2});
  // Tie a matrix of layer 0 to the same one of layer 1: only the root contains both users.
  int tied = -1;
  for (const auto v : boost::make_iterator_range(boost::vertices(graph.dag))) {
    if (graph.dag[v].module == "model.layers.0.mlp.up_proj") tied = graph.dag[v].parameters[0];
    if (graph.dag[v].module == "model.layers.1.mlp.up_proj")
      graph.parameters[std::exchange(graph.dag[v].parameters[0], tied)].trainable = false;
  }
  const Plan plan = make_plan(job, graph);
  bool in_root = false;
  for (const UnitParameter& parameter : plan.units[0].parameters)
    in_root = in_root || parameter.name == "model.layers.0.mlp.up_proj.weight";
  EXPECT_TRUE(in_root);
}

TEST(Wrap, UnknownClassIsRefusedWithTheModelsOwn) {
  Job job = tiny_job(Strategy::FullShard, 2);
  job.strategy.wrap.layer_classes = {"GPT2Block"};
  try {
    make_plan(job, tiny_llama());
    FAIL() << "accepted a class that the model does not have";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("LlamaDecoderLayer"));
  }
}

TEST(Wrap, DdpBucketsFollowTheBackwardOrder) {
  const Plan plan = make_plan(tiny_job(Strategy::Ddp, 2), tiny_llama());
  ASSERT_FALSE(plan.units.empty());
  EXPECT_EQ(plan.units[0].name, "bucket.0");
  EXPECT_EQ(plan.units[0].parameters[0].name, "lm_head.weight");
}

TEST(Wrap, ADdpBucketClosesWhenItReachesItsLimit) {
  Job job = tiny_job(Strategy::Ddp, 2);
  job.strategy.ddp.bucket_cap_mb = 100.0 / 1024;  // 100 KiB: the head alone is 107 KiB
  const Plan plan = make_plan(job, tiny_llama());
  EXPECT_EQ(plan.units[0].parameters.size(), 1U);
  EXPECT_GT(plan.units.size(), 2U);
}

// From PyTorch 2.11, FSDP1 at 4 ranks: tests/oracle, llama-odd_fsdp1-full_w4_fp32_sgd.
TEST(Layout, FlatParametersArePaddedAsFsdp1Does) {
  const Plan plan = make_plan(tiny_job(Strategy::FullShard, 4), tiny_llama());
  EXPECT_EQ(plan.units[0].padded_elems, 55032);
  EXPECT_EQ(plan.units[0].shard_elems, 13758);
  EXPECT_EQ(plan.units[1].padded_elems, 30088);
  EXPECT_EQ(plan.units[1].shard_elems, 7522);
}

TEST(Layout, ShardsCutParametersWhereFsdp1Does) {
  const Plan plan = make_plan(tiny_job(Strategy::FullShard, 4), tiny_llama());
  EXPECT_THAT(elements_per_rank(plan, "model.embed_tokens.weight"),
              ElementsAre(13758, 13728, 0, 0));
  EXPECT_THAT(elements_per_rank(plan, "model.norm.weight"), ElementsAre(0, 28, 26, 0));
  EXPECT_THAT(elements_per_rank(plan, "lm_head.weight"), ElementsAre(0, 0, 13730, 13756));
  EXPECT_THAT(elements_per_rank(plan, "model.layers.0.mlp.gate_proj.weight"),
              ElementsAre(1042, 6788, 0, 0));
}

TEST(Layout, RanksWithEqualShardsShareAClass) {
  const Plan even =
      make_plan(tiny_job(Strategy::FullShard, 2),
                tiny_llama({.channels = 64, .heads = 4, .kv_heads = 2, .ffn = 172, .vocab = 512}));
  EXPECT_EQ(even.classes.size(), 1U);
  const Plan many = make_plan(tiny_job(Strategy::FullShard, 4096), tiny_llama());
  EXPECT_LE(many.classes.size(), 8U);
  EXPECT_EQ(many.classes.back().last, 4095);
}

TEST(Layout, ClassesAddUpToTheRealElements) {
  const Plan plan = make_plan(tiny_job(Strategy::FullShard, 100), tiny_llama());
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    std::int64_t sum = 0;
    for (const RankClass& ranks : plan.classes)
      sum += ranks.valid[u] * (ranks.last - ranks.first + 1);
    EXPECT_EQ(sum, plan.units[u].elems);
  }
}

/// Real elements of all units on each rank of the shard group.
std::vector<std::int64_t> elements_of_ranks(const Plan& plan) {
  std::vector<std::int64_t> counts;
  for (const RankClass& ranks : plan.classes)
    for (std::int64_t rank = ranks.first; rank <= ranks.last; ++rank)
      counts.push_back(std::accumulate(ranks.valid.begin(), ranks.valid.end(), std::int64_t{0}));
  return counts;
}

// PyTorch 2.11's fully_shard of this model (numerics oracle, llama-odd at 4 ranks).
TEST(PerParameterLayout, CutsEveryParameterByRowsAsFsdp2Does) {
  Job job = tiny_job(Strategy::FullShard, 4);
  job.strategy.layout = Layout::PerParameter;
  const Plan plan = make_plan(job, tiny_llama());
  EXPECT_EQ(plan.units[1].padded_elems, 31128);
  EXPECT_THAT(elements_of_ranks(plan), ElementsAre(29402, 29402, 29402, 26976));
  const auto& slices = plan.units[1].slices;
  EXPECT_EQ(slices.size(), 9U);
  EXPECT_EQ(slices[1].valid, 6 * 54);  // k_proj: 2 rows for each of three ranks, none for the last
  EXPECT_EQ(slices[1].elems, 8 * 54);
}

TEST(PerParameterLayout, GathersAndReducesEveryParameterInOneCollective) {
  Job job = tiny_job(Strategy::FullShard, 4);
  job.strategy.layout = Layout::PerParameter;
  const Plan plan = make_plan(job, tiny_llama());
  for (const Instruction& instruction : plan.instructions)
    if (std::holds_alternative<AllGather>(instruction.operation) ||
        std::holds_alternative<ReduceScatter>(instruction.operation)) {
      EXPECT_EQ(instruction.reads.size(), plan.units[instruction.unit].parameters.size());
    }
}

TEST(Layout, MatricesAloneDecayWhenTheJobSaysSo) {
  Job job = tiny_job(Strategy::FullShard, 4);
  job.training.optimizer.decay = OptimizerJob::Decay::Matrices;
  const Plan plan = make_plan(job, tiny_llama());
  ASSERT_EQ(plan.units[1].slices.size(), 2U);
  EXPECT_TRUE(plan.units[1].slices[0].decays);
  EXPECT_EQ(plan.units[1].slices[0].valid, plan.units[1].parameters[6].at + 145 * 54);
  EXPECT_FALSE(plan.units[1].slices[1].decays);
  EXPECT_EQ(plan.units[1].parameters[7].name, "model.layers.0.input_layernorm.weight");
  std::vector<double> decay;
  for (const Instruction& instruction : plan.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.operation);
        compute != nullptr && compute->kernel == Kernel::Adam && instruction.unit == 1)
      decay.push_back(compute->attributes.real(Attribute::WeightDecay, -1));
  EXPECT_THAT(decay, ElementsAre(0.1, 0.0));
}

TEST(Layout, WhatIsFrozenHasNoGradientAndNoState) {
  ModelGraph graph = tiny_llama();
  choose_trainable(graph, {"q_proj", "model.norm"});
  for (const Strategy strategy : {Strategy::FullShard, Strategy::Ddp}) {
    const Plan plan = make_plan(tiny_job(strategy, 4), graph);
    EXPECT_TRUE(verify(plan).empty());
    std::int64_t state = 0;
    for (const Buffer& buffer : plan.buffers)
      if (buffer.category == Category::OptimizerState) state += buffer.elems;
    const std::int64_t trained = 2 * 54 * 54 + 54;  // of two layers, and the final norm
    EXPECT_LE(state, 2 * (trained / plan.mesh.shard + 12));
    for (const Instruction& instruction : plan.instructions)
      EXPECT_EQ(instruction.name.find("v_proj.linear_backward_weight"), std::string::npos);
  }
}

TEST(Wrap, BySizeTakesModulesFromTheLeavesUp) {
  Job job = tiny_job(Strategy::FullShard, 2);
  // Attention has 6480 parameters, an MLP 23490, embedding and head 27486 each.
  job.strategy.wrap = {.kind = WrapPolicy::Kind::Size, .min_params = 20000};
  EXPECT_THAT(unit_names(make_plan(job, tiny_llama())),
              ElementsAre("root", "model.embed_tokens", "model.layers.0.mlp", "model.layers.1.mlp",
                          "lm_head"));
  job.strategy.wrap.min_params = 30000;
  EXPECT_THAT(unit_names(make_plan(job, tiny_llama())),
              ElementsAre("root", "model.layers.0", "model.layers.1"));
}

TEST(Wrap, NestedUnitsTakeTheirOwnParameters) {
  Job job = tiny_job(Strategy::FullShard, 2);
  job.strategy.wrap = {.kind = WrapPolicy::Kind::Modules,
                       .names = {"model.layers.0", "model.layers.0.mlp"}};
  const Plan plan = make_plan(job, tiny_llama());
  EXPECT_THAT(unit_names(plan), ElementsAre("root", "model.layers.0", "model.layers.0.mlp"));
  EXPECT_EQ(plan.units[1].parameters.size(), 6U);  // attention and both norms
  EXPECT_EQ(plan.units[2].parameters.size(), 3U);
  EXPECT_TRUE(verify(plan).empty());
}

}  // namespace
}  // namespace shardplan
