#include "kernels/kernels.h"
#include "plans/error.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

using Targets = std::vector<std::int32_t>;

constexpr std::int64_t kVocab = 13;

double reference(const Doubles& logits, const Targets& targets) {
  const std::size_t vocab = logits.size() / targets.size();
  double sum = 0;
  double counted = 0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == -100) continue;
    double exponentials = 0;
    for (std::size_t i = 0; i < vocab; ++i)
      exponentials += std::exp(logits[row * vocab + i]);
    sum += std::log(exponentials) - logits[row * vocab + targets[row]];
    ++counted;
  }
  return sum / counted;
}

struct Result {
  double loss = std::numeric_limits<double>::quiet_NaN();
  Floats gradient;
};

Result run(const Floats& logits, const Targets& targets, double grad_scale = 1) {
  const std::int64_t rows = std::ssize(targets);
  const std::int64_t vocab = std::ssize(logits) / std::ssize(targets);
  Result result{.gradient = stale(std::ssize(logits))};
  cross_entropy(logits.data(), targets.data(), &result.loss, result.gradient.data(),
                {rows, vocab, 0, rows}, grad_scale, Store::Overwrite);
  return result;
}

TEST(CrossEntropy, LossEqualsItsFormula) {
  const std::int64_t vocab = 509;
  const Floats logits = random_floats(3 * vocab, 1, 3.0F);
  const Targets targets{0, 508, 17};
  EXPECT_NEAR(run(logits, targets).loss, reference(widen(logits), targets), 1e-7);
}

TEST(CrossEntropy, GradientEqualsFiniteDifferencesTimesTheScale) {
  const Floats logits = random_floats(4 * kVocab, 2, 2.0F);
  const Targets targets{12, 0, 5, 5};
  Doubles expected =
      numeric_gradient([&](const Doubles& v) { return reference(v, targets); }, widen(logits));
  expect_close(run(logits, targets).gradient, expected);
  for (double& value : expected)
    value *= 0.125;
  expect_close(run(logits, targets, 0.125).gradient, expected);
}

TEST(CrossEntropy, AddsItsScaledLossToOthers) {
  const Floats logits = random_floats(2 * kVocab, 6);
  const Targets targets{3, 7};
  Floats gradient = stale(std::ssize(logits));
  double loss = 10;
  cross_entropy(logits.data(), targets.data(), &loss, gradient.data(), {2, kVocab, 0, 2}, 0.5,
                Store::Accumulate);
  EXPECT_NEAR(loss, 10 + 0.5 * reference(widen(logits), targets), 1e-7);
}

TEST(CrossEntropy, ChunksOfABatchAddUpToIt) {
  const Floats logits = random_floats(5 * kVocab, 7);
  const Targets targets{3, -100, 7, 0, 12};
  const Result whole = run(logits, targets);
  Floats gradient = stale(std::ssize(logits));
  double loss = 0;
  for (const LogitsShape& chunk : {LogitsShape{2, kVocab, 0, 5}, LogitsShape{3, kVocab, 2, 5}})
    cross_entropy(logits.data() + chunk.first * kVocab, targets.data(), &loss,
                  gradient.data() + chunk.first * kVocab, chunk, 1, Store::Accumulate);
  EXPECT_NEAR(loss, whole.loss, 1e-12);
  EXPECT_EQ(gradient, whole.gradient);
}

TEST(CrossEntropy, DoesNotCountIgnoredTargets) {
  const Floats logits = random_floats(4 * kVocab, 3);
  const Targets targets{3, -100, 7, -100};
  const Result result = run(logits, targets);
  EXPECT_NEAR(result.loss, reference(widen(logits), targets), 1e-7);
  expect_close(
      result.gradient,
      numeric_gradient([&](const Doubles& v) { return reference(v, targets); }, widen(logits)));
  EXPECT_EQ(result.gradient[1 * kVocab], 0);
}

TEST(CrossEntropy, OfNoTargetsIsNotANumberAndHasNoGradient) {
  const Result result = run(random_floats(10, 4), {-100, -100});
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_EQ(result.gradient, Floats(10, 0.0F));
}

TEST(CrossEntropy, WritesTheGradientOverTheLogits) {
  const Floats logits = random_floats(3 * kVocab, 5);
  const Targets targets{1, 12, -100};
  const Result apart = run(logits, targets);
  Floats in_place = logits;
  double loss = 0;
  cross_entropy(in_place.data(), targets.data(), &loss, in_place.data(), {3, kVocab, 0, 3}, 1,
                Store::Overwrite);
  EXPECT_EQ(loss, apart.loss);
  EXPECT_EQ(in_place, apart.gradient);
}

TEST(CrossEntropy, SurvivesLogitsWhoseExponentialsOverflow) {
  const Result result = run({1000.0F, 999.0F, -1000.0F}, {1});
  EXPECT_NEAR(result.loss, 1 + std::log(1 + std::exp(-1.0)), 1e-7);
  EXPECT_EQ(result.gradient[2], 0);
}

TEST(CrossEntropy, ShowsThatALogitIsNotANumber) {
  const Result result = run({0.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F}, {0});
  EXPECT_TRUE(std::isnan(result.loss));
}

TEST(CrossEntropy, NamesATargetOutsideTheVocabulary) {
  for (const std::int32_t wrong : {-1, 5, -101}) {
    try {
      run(Floats(10), {4, wrong});
      FAIL() << "target " << wrong << " is accepted";
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()), "target " + std::to_string(wrong) +
                                               " at position 1 of the batch: expected 0 to 4, "
                                               "or -100");
    }
  }
}

}  // namespace
}  // namespace shardplan::cpu
