#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "planner/passes/autograd.h"
#include "plans/error.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using testing::tiny_llama;
const TapeSettings kSettings{.sizes = {.batch = 2, .time = 8}, .checkpointing = {}};

int count(const std::vector<TapeLaunch>& launches, Kernel kernel) {
  return static_cast<int>(
      std::ranges::count(launches, kernel, [](const TapeLaunch& l) { return l.kernel; }));
}

const TapeLaunch& only(const std::vector<TapeLaunch>& launches, Kernel kernel) {
  return *std::ranges::find(launches, kernel, [](const TapeLaunch& l) { return l.kernel; });
}

TEST(Autograd, EveryParameterGetsItsGradientWrittenOnceUntied) {
  const ModelGraph graph = tiny_llama();
  const Tape tape = autograd(graph, kSettings);
  std::map<int, int> writes;
  for (const TapeLaunch& launch : tape.backward)
    for (const TapeOperand& write : launch.writes)
      if (write.kind == TapeOperand::Kind::ParameterGradient) ++writes[write.index];
  EXPECT_EQ(writes.size(), graph.parameters.size());
  for (const auto& [parameter, times] : writes)
    EXPECT_EQ(times, 1) << parameter;
}

TEST(Autograd, TiedWeightGetsTheSecondGradientAdded) {
  const Tape tape = autograd(tiny_llama({.tied = true}), kSettings);
  const TapeLaunch& embedding = only(tape.backward, Kernel::EmbeddingBackward);
  EXPECT_EQ(embedding.reads.back(), embedding.writes.front());
  const Tape untied = autograd(tiny_llama(), kSettings);
  EXPECT_EQ(only(untied.backward, Kernel::EmbeddingBackward).reads.size(), 2U);
}

TEST(Autograd, ResidualGradientsPassThroughWithoutAKernel) {
  const Tape tape = autograd(tiny_llama(), kSettings);
  EXPECT_EQ(count(tape.backward, Kernel::Add), 0);
  // The norm's input gradient is added onto the residual's, in place.
  for (const TapeLaunch& launch : tape.backward)
    if (launch.kernel == Kernel::RmsNormBackward && launch.reads.size() > 4) {
      EXPECT_EQ(launch.reads[4], launch.writes[0]);
    }
}

TEST(Autograd, RotationsAndResidualsWorkInPlace) {
  const Tape tape = autograd(tiny_llama(), kSettings);
  for (const TapeLaunch& launch : tape.forward) {
    if (launch.kernel == Kernel::Rope) {
      EXPECT_EQ(launch.reads[0], launch.writes[0]);
    }
    if (launch.kernel == Kernel::Add) {
      EXPECT_EQ(launch.reads[1], launch.writes[0]);
    }
  }
}

TEST(Autograd, LossWritesItsGradientOverTheLogits) {
  const Tape tape = autograd(tiny_llama(), kSettings);
  const TapeLaunch& loss = only(tape.forward, Kernel::CrossEntropy);
  EXPECT_EQ(loss.writes[1], loss.reads[0]);
  EXPECT_EQ(loss.writes[0].index, tape.loss);
}

TEST(Autograd, ActivationsAreWhatBackwardReads) {
  const Tape tape = autograd(tiny_llama({.layers = 1}), kSettings);
  std::map<Category, int> categories;
  for (const TapeValue& value : tape.values)
    ++categories[value.category];
  EXPECT_EQ(categories[Category::Inputs], 2);
  // Per block: input, rstd, norm output, q, k, v, attention output, lse, block middle, rstd, norm
  // output, gate, up, product; then final norm's input, rstd and output, and the logits.
  EXPECT_EQ(categories[Category::Activations], 18);
}

TEST(Autograd, AParameterUsedByThreeOperatorsIsAddedTwice) {
  ModelGraph graph = tiny_llama({.layers = 1});
  const int shared = graph.dag[3].parameters.at(0);  // input_layernorm
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag)))
    if (graph.dag[vertex].kind == OperatorKind::RmsNorm) graph.dag[vertex].parameters = {shared};
  for (const char* name : {"model.layers.0.post_attention_layernorm.weight", "model.norm.weight"})
    std::ranges::find(graph.parameters, name, &Parameter::name)->trainable = false;  // unused
  const Tape tape = autograd(graph, kSettings);
  int added = 0;
  for (const TapeLaunch& launch : tape.backward)
    if (launch.kernel == Kernel::RmsNormBackward &&
        std::ranges::find(launch.reads, launch.writes[1]) != launch.reads.end())
      ++added;
  EXPECT_EQ(added, 2);
}

int count_again(const Tape& tape) {
  return static_cast<int>(std::ranges::count_if(
      tape.backward, [](const TapeLaunch& launch) { return launch.recomputation; }));
}

TapeSettings checkpointed(ActivationCheckpointing checkpointing) {
  TapeSettings settings = kSettings;
  settings.checkpointing = std::move(checkpointing);
  return settings;
}

TEST(Recomputation, OfAWholeBlockRunsWhatBackwardReadsAgain) {
  const Tape tape = autograd(tiny_llama(), checkpointed({ActivationCheckpointing::Kind::Full, {}}));
  // Per block, of its 15 kernels all but the last product and the addition after it.
  EXPECT_EQ(count_again(tape), 2 * 13);
  std::map<int, int> kept;
  for (const TapeLaunch& launch : tape.forward)
    for (const TapeOperand& write : launch.writes)
      if (tape.values[write.index].category == Category::Activations) ++kept[write.index];
  // The input of each block; then the final norm's input, rstd and output, and the logits.
  EXPECT_EQ(kept.size(), 2U + 4U);
}

TEST(Recomputation, StartsWhereBackwardFirstNeedsIt) {
  const Tape tape = autograd(tiny_llama(), checkpointed({ActivationCheckpointing::Kind::Full, {}}));
  const auto first = std::ranges::find(tape.backward, true, &TapeLaunch::recomputation);
  EXPECT_EQ((first - 1)->kernel, Kernel::RmsNormBackward);  // of the final norm
}

TEST(Recomputation, OfNamedOperatorsKeepsTheRest) {
  const Tape tape =
      autograd(tiny_llama(), checkpointed({ActivationCheckpointing::Kind::Selective,
                                           {OperatorKind::RmsNorm, OperatorKind::SwiGlu}}));
  EXPECT_EQ(count_again(tape), 2 * 3);
  for (const TapeLaunch& launch : tape.backward)
    if (launch.recomputation) {
      EXPECT_TRUE(launch.kernel == Kernel::RmsNorm || launch.kernel == Kernel::SwiGlu);
    }
}

TEST(Recomputation, OfEverySecondBlockLeavesTheOthers) {
  const Tape tape =
      autograd(tiny_llama({.layers = 4}),
               checkpointed({.kind = ActivationCheckpointing::Kind::Every, .every = 2}));
  EXPECT_EQ(count_again(tape), 2 * 13);
}

TEST(LossChunks, HoldTheLogitsOfAPartOfTheTokensAtATime) {
  TapeSettings settings = kSettings;
  settings.loss_chunks = 3;
  const Tape tape = autograd(tiny_llama(), settings);
  std::vector<std::int64_t> rows;
  for (const TapeLaunch& launch : tape.forward)
    if (launch.kernel == Kernel::CrossEntropy) {
      rows.push_back(launch.attributes.integer(Attribute::Rows));
      EXPECT_EQ(tape.values[launch.reads[0].index].elems, rows.back() * 509);
    }
  EXPECT_EQ(rows, (std::vector<std::int64_t>{6, 6, 4}));
  // The head is differentiated with the loss, and in backward no more.
  EXPECT_EQ(count(tape.forward, Kernel::LinearBackwardWeight), 3);
  EXPECT_EQ(count(tape.backward, Kernel::LinearBackwardWeight), 2 * 7);
}

TEST(LossChunks, NeedALinearHeadOfTheirOwn) {
  ModelGraph graph = tiny_llama();
  const auto head = boost::num_vertices(graph.dag) - 2;
  TapeSettings settings = kSettings;
  settings.loss_chunks = 2;
  graph.dag[head].kind = OperatorKind::SoftCap;
  EXPECT_THROW(autograd(graph, settings), InputError);
}

TEST(Autograd, NothingBelowTheFirstTrainedParameterIsDifferentiated) {
  ModelGraph graph = tiny_llama();
  for (Parameter& parameter : graph.parameters)
    parameter.trainable = parameter.name == "model.layers.1.mlp.down_proj.weight";
  const Tape tape = autograd(graph, kSettings);
  // The head's and the final norm's input gradients, and the one product.
  EXPECT_EQ(tape.backward.size(), 3U);
  EXPECT_EQ(tape.backward.back().kernel, Kernel::LinearBackwardWeight);
}

TEST(Autograd, AParameterThatNothingUsesIsRefusedUnlessItIsFrozen) {
  ModelGraph graph = tiny_llama();
  graph.add_parameter({"unused.weight", {3}, {}});
  EXPECT_THROW(autograd(graph, kSettings), InputError);
  graph.parameters.back().trainable = false;
  EXPECT_NO_THROW(autograd(graph, kSettings));
}

TEST(Autograd, WithoutATrainedParameterIsRefused) {
  ModelGraph graph = tiny_llama();
  for (Parameter& parameter : graph.parameters)
    parameter.trainable = false;
  EXPECT_THROW(autograd(graph, kSettings), InputError);
}

TEST(Autograd, EverySecondProductOfABlockIsComputedAgain) {
  ActivationCheckpointing checkpointing{.kind = ActivationCheckpointing::Kind::Selective};
  checkpointing.operators = {OperatorKind::Rope};
  checkpointing.every_second = {OperatorKind::Linear};
  TapeSettings settings = kSettings;
  settings.checkpointing = checkpointing;
  const Tape tape = autograd(tiny_llama(), settings);
  std::map<int, int> again;  // by vertex
  for (const TapeLaunch& launch : tape.backward)
    if (launch.recomputation && launch.kernel == Kernel::Linear) ++again[launch.vertex];
  // Of each block's seven the second (k) and the sixth (up); the fourth (o) nobody needs again.
  EXPECT_EQ(again.size(), 2U * 2U);
}

TEST(Autograd, WhatLiesInAModuleOfThatNameIsComputedAgain) {
  const ModelGraph graph = tiny_llama();
  TapeSettings settings = kSettings;
  settings.checkpointing.kind = ActivationCheckpointing::Kind::Selective;
  settings.checkpointing.modules = {"mlp"};
  int again = 0;
  for (const TapeLaunch& launch : autograd(graph, settings).backward)
    if (launch.recomputation) {
      EXPECT_NE(graph.dag[launch.vertex].module.find(".mlp"), std::string::npos);
      ++again;
    }
  EXPECT_EQ(again, 2 * 3);  // gate, up and what multiplies them, in two blocks
  settings.checkpointing.modules = {"mpl"};
  EXPECT_THROW(autograd(graph, settings), InputError);
}

}  // namespace
}  // namespace shardplan
