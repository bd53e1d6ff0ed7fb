#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "planner/passes/autograd.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using testing::tiny_llama;
constexpr Sizes kSizes{.batch = 2, .time = 8};

int count(const std::vector<TapeLaunch>& launches, Kernel kernel) {
  return static_cast<int>(
      std::ranges::count(launches, kernel, [](const TapeLaunch& l) { return l.kernel; }));
}

const TapeLaunch& only(const std::vector<TapeLaunch>& launches, Kernel kernel) {
  return *std::ranges::find(launches, kernel, [](const TapeLaunch& l) { return l.kernel; });
}

TEST(Autograd, EveryParameterGetsItsGradientWrittenOnceUntied) {
  const ModelGraph graph = tiny_llama();
  const Tape tape = autograd(graph, kSizes, Profile::CpuOneDnn);
  std::map<int, int> writes;
  for (const TapeLaunch& launch : tape.backward)
    for (const TapeOperand& write : launch.writes)
      if (write.kind == TapeOperand::Kind::ParameterGradient) ++writes[write.index];
  EXPECT_EQ(writes.size(), graph.parameters.size());
  for (const auto& [parameter, times] : writes)
    EXPECT_EQ(times, 1) << parameter;
}

TEST(Autograd, TiedWeightGetsTheSecondGradientAdded) {
  const Tape tape = autograd(tiny_llama({.tied = true}), kSizes, Profile::CpuOneDnn);
  const TapeLaunch& embedding = only(tape.backward, Kernel::EmbeddingBackward);
  EXPECT_EQ(embedding.reads.back(), embedding.writes.front());
  const Tape untied = autograd(tiny_llama(), kSizes, Profile::CpuOneDnn);
  EXPECT_EQ(only(untied.backward, Kernel::EmbeddingBackward).reads.size(), 2U);
}

TEST(Autograd, ResidualGradientsPassThroughWithoutAKernel) {
  const Tape tape = autograd(tiny_llama(), kSizes, Profile::CpuOneDnn);
  EXPECT_EQ(count(tape.backward, Kernel::Add), 0);
  // The norm's input gradient is added onto the residual's, in place.
  for (const TapeLaunch& launch : tape.backward)
    if (launch.kernel == Kernel::RmsNormBackward && launch.reads.size() > 4) {
      EXPECT_EQ(launch.reads[4], launch.writes[0]);
    }
}

TEST(Autograd, RotationsAndResidualsWorkInPlace) {
  const Tape tape = autograd(tiny_llama(), kSizes, Profile::CpuOneDnn);
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
  const Tape tape = autograd(tiny_llama(), kSizes, Profile::CpuOneDnn);
  const TapeLaunch& loss = only(tape.forward, Kernel::CrossEntropy);
  EXPECT_EQ(loss.writes[1], loss.reads[0]);
  EXPECT_EQ(loss.writes[0].index, tape.loss);
}

TEST(Autograd, ActivationsAreWhatBackwardReads) {
  const Tape tape = autograd(tiny_llama({.layers = 1}), kSizes, Profile::CpuOneDnn);
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
  const Tape tape = autograd(graph, kSizes, Profile::CpuOneDnn);
  int added = 0;
  for (const TapeLaunch& launch : tape.backward)
    if (launch.kernel == Kernel::RmsNormBackward &&
        std::ranges::find(launch.reads, launch.writes[1]) != launch.reads.end())
      ++added;
  EXPECT_EQ(added, 2);
}

}  // namespace
}  // namespace shardplan
