#include "planner/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/planner.h"
#include "planner/trainable.h"
#include "plans/error.h"
#include "plans/verify.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::tiny_job;
using testing::tiny_llama;

ModelGraph adapted(const LoraJob& lora) {
  ModelGraph graph = tiny_llama();
  choose_trainable(graph, {});
  return with_lora(graph, lora);
}

TEST(Lora, AddsTwoNarrowMatricesBesideEveryTarget) {
  const ModelGraph graph = adapted({.rank = 4, .targets = {"q_proj", "v_proj"}});
  std::int64_t trained = 0;
  for (const Parameter& parameter : graph.parameters)
    if (parameter.trainable) trained += parameter.elements();
  // Per layer: q_proj is 54 x 54, v_proj 6 x 54.
  EXPECT_EQ(trained, 2 * (4 * (54 + 54) + 4 * (54 + 6)));
  const auto a = std::ranges::find(graph.parameters,
                                   "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight",
                                   &Parameter::name);
  ASSERT_NE(a, graph.parameters.end());
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{4, 54}));
}

TEST(Lora, TrainsTheAdaptersAlone) {
  const ModelGraph graph = adapted({.rank = 4, .targets = {"q_proj"}});
  for (const Strategy strategy : {Strategy::FullShard, Strategy::Ddp}) {
    const Plan plan = make_plan(tiny_job(strategy, 2), graph);
    EXPECT_TRUE(verify(plan).empty());
    std::int64_t state = 0;
    for (const Buffer& buffer : plan.buffers)
      if (buffer.category == Category::OptimizerState) state += buffer.elems;
    EXPECT_EQ(state * plan.mesh.shard, 2 * 2 * 4 * (54 + 54));
  }
}

TEST(Lora, RefusesATargetThatIsNoLinearLayer) {
  EXPECT_THAT([] { adapted({.targets = {"query"}}); },
              ThrowsMessage<InputError>(HasSubstr("no linear layer 'query'; it has ")));
}

TEST(Trainable, PatternsNameModulesByTheirLastComponents) {
  ModelGraph graph = tiny_llama();
  const auto trained = [&](const std::vector<std::string>& patterns) {
    choose_trainable(graph, patterns);
    return std::ranges::count(graph.parameters, true, &Parameter::trainable);
  };
  EXPECT_EQ(trained({"lm_head"}), 1);
  EXPECT_EQ(trained({"q_proj", "model.norm.weight"}), 3);
  EXPECT_EQ(trained({"model.layers.1"}), 9);
  EXPECT_EQ(trained({"layers.*.mlp"}), 6);
  EXPECT_EQ(trained({"*"}), 21);
  EXPECT_THAT([&] { choose_trainable(graph, {"head"}); },
              ThrowsMessage<InputError>(HasSubstr("'head' names no parameter")));
}

TEST(Trainable, StarsStandForAnyText) {
  EXPECT_TRUE(matches("model.*.weight", "model.layers.0.weight"));
  EXPECT_TRUE(matches("a?c*", "abc"));
  EXPECT_FALSE(matches("model", "model.norm"));
  EXPECT_FALSE(matches("*.bias", "norm.weight"));
}

}  // namespace
}  // namespace shardplan
