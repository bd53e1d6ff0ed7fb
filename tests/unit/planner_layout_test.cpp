#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/passes/layout.h"
#include "planner/planner.h"
#include "plans/error.h"
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
    if (graph.dag[v].module == "model.layers.1.mlp.up_proj") graph.dag[v].parameters[0] = tied;
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

}  // namespace
}  // namespace shardplan
