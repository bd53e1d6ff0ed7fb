#include "kernels/kernels.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

constexpr float kEpsilon = 1e-5F;

struct Extents {
  std::int64_t rows;
  std::int64_t channels;
};

Doubles rms_norm_reference(const Doubles& x, const Doubles& weight, Extents e) {
  Doubles out(x.size());
  for (std::int64_t row = 0; row < e.rows; ++row) {
    double squares = 0;
    for (std::int64_t c = 0; c < e.channels; ++c)
      squares += x[row * e.channels + c] * x[row * e.channels + c];
    const double root = std::sqrt(squares / static_cast<double>(e.channels) + kEpsilon);
    for (std::int64_t c = 0; c < e.channels; ++c)
      out[row * e.channels + c] = x[row * e.channels + c] / root * weight[c];
  }
  return out;
}

Doubles layer_norm_reference(const Doubles& x, const Doubles& weight, const Doubles& bias,
                             Extents e) {
  Doubles out(x.size());
  for (std::int64_t row = 0; row < e.rows; ++row) {
    double mean = 0;
    double variance = 0;
    for (std::int64_t c = 0; c < e.channels; ++c)
      mean += x[row * e.channels + c] / static_cast<double>(e.channels);
    for (std::int64_t c = 0; c < e.channels; ++c)
      variance += std::pow(x[row * e.channels + c] - mean, 2) / static_cast<double>(e.channels);
    for (std::int64_t c = 0; c < e.channels; ++c)
      out[row * e.channels + c] =
          (x[row * e.channels + c] - mean) / std::sqrt(variance + kEpsilon) * weight[c] + bias[c];
  }
  return out;
}

class Norm : public testing::TestWithParam<Extents> {
 protected:
  const Extents extents = GetParam();
  const std::int64_t rows = extents.rows;
  const std::int64_t channels = extents.channels;
  const Floats x = random_floats(rows * channels, 1, 2.0F);
  const Floats weight = random_floats(channels, 2);
  const Floats bias = random_floats(channels, 3);
  const Floats grad_out = random_floats(rows * channels, 4);
  const Floats old_x = random_floats(rows * channels, 5);
  const Floats old_weight = random_floats(channels, 6);
  const Floats old_bias = random_floats(channels, 7);
};

INSTANTIATE_TEST_SUITE_P(OddAndEvenSizes, Norm,
                         testing::Values(Extents{1, 1}, Extents{3, 7}, Extents{5, 8},
                                         Extents{2, 64}, Extents{2, 509}),
                         [](const auto& test) {
                           return std::to_string(test.param.rows) + "x" +
                                  std::to_string(test.param.channels);
                         });

TEST_P(Norm, RmsNormEqualsItsFormula) {
  Floats out = stale(std::ssize(x));
  Floats rstd = stale(rows);
  rms_norm(x.data(), weight.data(), out.data(), rstd.data(), rows, channels, kEpsilon);
  expect_close(out, rms_norm_reference(widen(x), widen(weight), extents));
}

TEST_P(Norm, RmsNormGradientsEqualFiniteDifferences) {
  const Doubles expected_x = numeric_gradient(
      [&](const Doubles& v) {
        return dot(rms_norm_reference(v, widen(weight), extents), grad_out);
      },
      widen(x));
  const Doubles expected_weight = numeric_gradient(
      [&](const Doubles& v) { return dot(rms_norm_reference(widen(x), v, extents), grad_out); },
      widen(weight));
  Floats out = stale(std::ssize(x));
  Floats rstd = stale(rows);
  rms_norm(x.data(), weight.data(), out.data(), rstd.data(), rows, channels, kEpsilon);

  Floats grad_x = stale(std::ssize(x));
  Floats grad_weight = stale(channels);
  rms_norm_backward(grad_out.data(), x.data(), weight.data(), rstd.data(), grad_x.data(),
                    grad_weight.data(), rows, channels, Store::Overwrite, Store::Overwrite);
  // With one channel the gradient is a difference of nearly equal numbers.
  expect_close(grad_x, expected_x, channels == 1 ? 0.2 : 2e-6);
  expect_close(grad_weight, expected_weight);

  grad_x = old_x;
  grad_weight = old_weight;
  rms_norm_backward(grad_out.data(), x.data(), weight.data(), rstd.data(), grad_x.data(),
                    grad_weight.data(), rows, channels, Store::Accumulate, Store::Accumulate);
  expect_close(grad_x, sum(expected_x, old_x));
  expect_close(grad_weight, sum(expected_weight, old_weight));
}

TEST_P(Norm, LayerNormEqualsItsFormula) {
  Floats out = stale(std::ssize(x));
  Floats mean = stale(rows);
  Floats rstd = stale(rows);
  layer_norm(x.data(), weight.data(), bias.data(), out.data(), mean.data(), rstd.data(), rows,
             channels, kEpsilon);
  expect_close(out, layer_norm_reference(widen(x), widen(weight), widen(bias), extents));
}

TEST_P(Norm, LayerNormGradientsEqualFiniteDifferences) {
  const auto loss = [&](const Doubles& v, const Doubles& w, const Doubles& b) {
    return dot(layer_norm_reference(v, w, b, extents), grad_out);
  };
  const Doubles expected_x = numeric_gradient(
      [&](const Doubles& v) { return loss(v, widen(weight), widen(bias)); }, widen(x));
  const Doubles expected_weight = numeric_gradient(
      [&](const Doubles& v) { return loss(widen(x), v, widen(bias)); }, widen(weight));
  const Doubles expected_bias = numeric_gradient(
      [&](const Doubles& v) { return loss(widen(x), widen(weight), v); }, widen(bias));
  Floats out = stale(std::ssize(x));
  Floats mean = stale(rows);
  Floats rstd = stale(rows);
  layer_norm(x.data(), weight.data(), bias.data(), out.data(), mean.data(), rstd.data(), rows,
             channels, kEpsilon);

  Floats grad_x = stale(std::ssize(x));
  Floats grad_weight = stale(channels);
  Floats grad_bias = stale(channels);
  layer_norm_backward(grad_out.data(), x.data(), weight.data(), mean.data(), rstd.data(),
                      grad_x.data(), grad_weight.data(), grad_bias.data(), rows, channels,
                      Store::Overwrite, Store::Overwrite, Store::Overwrite);
  expect_close(grad_x, expected_x);
  expect_close(grad_weight, expected_weight);
  expect_close(grad_bias, expected_bias);

  grad_x = old_x;
  grad_weight = old_weight;
  grad_bias = old_bias;
  layer_norm_backward(grad_out.data(), x.data(), weight.data(), mean.data(), rstd.data(),
                      grad_x.data(), grad_weight.data(), grad_bias.data(), rows, channels,
                      Store::Accumulate, Store::Accumulate, Store::Accumulate);
  expect_close(grad_x, sum(expected_x, old_x));
  expect_close(grad_weight, sum(expected_weight, old_weight));
  expect_close(grad_bias, sum(expected_bias, old_bias));
}

TEST(LayerNorm, KeepsItsDigitsFarFromZero) {
  // A variance from the mean of squares would be wrong in every digit here.
  const std::int64_t channels = 509;
  const Floats ones(channels, 1.0F);
  const Floats zeros(channels, 0.0F);
  Floats x = random_floats(channels, 1);
  for (float& value : x)
    value += 4096.0F;
  Floats out = stale(channels);
  float mean = 0;
  float rstd = 0;
  layer_norm(x.data(), ones.data(), zeros.data(), out.data(), &mean, &rstd, 1, channels, kEpsilon);
  // The mean is kept in single precision: half a unit in its last place is 2.4e-4.
  expect_close(out, layer_norm_reference(widen(x), widen(ones), widen(zeros), {1, channels}), 3e-4);
}

}  // namespace
}  // namespace shardplan::cpu
