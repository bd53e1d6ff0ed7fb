#include <bit>
#include <numbers>

#include "kernels/arithmetic.h"
#include "kernels/kernels.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

TEST(Exponential, IsWithinOneUlp) {
  // Every 101st float of both signs from the smallest normal result up to e^88.
  for (const std::uint32_t sign : {0U, 0x80000000U})
    for (std::uint32_t bits = 0;; bits += 101) {
      const auto x = std::bit_cast<float>(bits | sign);
      if (x > 88.0F || x < -87.33F) break;
      const double exact = std::exp(static_cast<double>(x));
      const auto rounded = static_cast<float>(exact);
      const float ulp = std::nextafter(rounded, std::numeric_limits<float>::infinity()) - rounded;
      ASSERT_LE(std::abs(exponential(x) - exact), ulp) << "at " << x;
    }
}

TEST(Exponential, IsZeroBelowTheSmallestNormalNumber) {
  EXPECT_EQ(exponential(-87.34F), 0.0F);
  EXPECT_EQ(exponential(-1e30F), 0.0F);
  EXPECT_EQ(exponential(-std::numeric_limits<float>::infinity()), 0.0F);
}

TEST(Exponential, KeepsNaN) {
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

template <typename Function>
double slope(Function function, double x) {
  return (function(x + 1e-5) - function(x - 1e-5)) / 2e-5;
}

/// From deep in one tail to deep in the other; an odd number of elements.
Floats both_tails() {
  Floats x;
  for (int i = -254; i <= 254; ++i)
    x.push_back(static_cast<float>(i) / 12.7F);
  return x;
}

TEST(SwiGlu, EqualsItsFormula) {
  const Floats gate = both_tails();
  const Floats up = random_floats(std::ssize(gate), 1);
  Floats out = stale(std::ssize(gate));
  swiglu(gate.data(), up.data(), out.data(), std::ssize(gate));
  for (std::size_t i = 0; i < gate.size(); ++i)
    EXPECT_NEAR(out[i], silu(gate[i]) * up[i], 5e-7 * std::abs(silu(gate[i]) * up[i]));
}

TEST(SwiGlu, SaturatesWithoutNaN) {
  const Floats gate{-1e30F, -200.0F, 200.0F, 1e30F};
  const Floats up(4, 1.0F);
  Floats out = stale(4);
  swiglu(gate.data(), up.data(), out.data(), 4);
  EXPECT_EQ(out, (Floats{0.0F, 0.0F, 200.0F, 1e30F}));
}

TEST(SwiGlu, GradientsEqualFiniteDifferences) {
  const Floats gate = both_tails();
  const Floats up = random_floats(std::ssize(gate), 1);
  const Floats grad_out = random_floats(std::ssize(gate), 2);
  Floats grad_gate = stale(std::ssize(gate));
  Floats grad_up = stale(std::ssize(gate));
  swiglu_backward(grad_out.data(), gate.data(), up.data(), grad_gate.data(), grad_up.data(),
                  std::ssize(gate));
  Doubles expected_gate, expected_up;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    expected_gate.push_back(grad_out[i] * up[i] * slope(silu, gate[i]));
    expected_up.push_back(grad_out[i] * silu(gate[i]));
  }
  expect_close(grad_gate, expected_gate, 5e-7);
  expect_close(grad_up, expected_up, 5e-7);
}

struct GeluCase {
  GeluKind kind;
  double (*reference)(double);
  const char* name;
};

class Gelu : public testing::TestWithParam<GeluCase> {};

INSTANTIATE_TEST_SUITE_P(Kinds, Gelu,
                         testing::Values(GeluCase{GeluKind::Erf, gelu_erf, "Erf"},
                                         GeluCase{GeluKind::Tanh, gelu_tanh, "Tanh"}),
                         [](const auto& test) { return test.param.name; });

TEST_P(Gelu, EqualsItsFormula) {
  const Floats x = both_tails();
  Floats out = stale(std::ssize(x));
  gelu(x.data(), out.data(), std::ssize(x), GetParam().kind);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(out[i], GetParam().reference(x[i]), 3e-7 * (1 + std::abs(x[i])) / 2);
}

TEST_P(Gelu, GradientEqualsFiniteDifferences) {
  const Floats x = both_tails();
  const Floats grad_out = random_floats(std::ssize(x), 3);
  Floats grad_x = stale(std::ssize(x));
  gelu_backward(grad_out.data(), x.data(), grad_x.data(), std::ssize(x), GetParam().kind);
  Doubles expected;
  for (std::size_t i = 0; i < x.size(); ++i)
    expected.push_back(grad_out[i] * slope(GetParam().reference, x[i]));
  expect_close(grad_x, expected, 5e-7);
}

}  // namespace
}  // namespace shardplan::cpu
