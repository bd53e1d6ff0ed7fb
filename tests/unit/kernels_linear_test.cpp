#include <functional>

#include "kernels/kernels.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

struct Case {
  Gemm gemm;
  WeightLayout layout;
  const char* name;
};

class Linear : public testing::TestWithParam<Case> {
 protected:
  const Gemm gemm = GetParam().gemm;
  const LinearShape shape{
      .rows = 5, .in_features = 7, .out_features = 3, .layout = GetParam().layout};
  const Floats x = random_floats(shape.rows * shape.in_features, 1);
  const Floats weight = random_floats(shape.in_features * shape.out_features, 2);
  const Floats bias = random_floats(shape.out_features, 3);
  const Floats grad_out = random_floats(shape.rows * shape.out_features, 4);

  Doubles reference(const Doubles& input, const Doubles& matrix, const Doubles& offset) const {
    Doubles out(shape.rows * shape.out_features);
    for (std::int64_t row = 0; row < shape.rows; ++row)
      for (std::int64_t o = 0; o < shape.out_features; ++o) {
        double sum = offset[o];
        for (std::int64_t i = 0; i < shape.in_features; ++i)
          sum += input[row * shape.in_features + i] *
                 matrix[shape.layout == WeightLayout::OutIn ? o * shape.in_features + i
                                                            : i * shape.out_features + o];
        out[row * shape.out_features + o] = sum;
      }
    return out;
  }

  /// Runs `backward` over stale memory, then over old values, against the gradient of the loss by
  /// one argument.
  template <typename Loss, typename Backward>
  void expect_gradient(Loss loss, const Floats& at, Backward backward) const {
    const Doubles expected = numeric_gradient(loss, widen(at));
    Floats gradient = stale(std::ssize(at));
    backward(gradient.data(), Store::Overwrite);
    expect_close(gradient, expected);
    // Two micro-steps give the bits that two ranks give.
    Floats added = random_floats(std::ssize(at), 5);
    std::transform(gradient.begin(), gradient.end(), added.begin(), gradient.begin(), std::plus());
    backward(added.data(), Store::Accumulate);
    EXPECT_EQ(added, gradient);
  }
};

INSTANTIATE_TEST_SUITE_P(
    GemmsAndLayouts, Linear,
    testing::Values(Case{gemm_onednn, WeightLayout::OutIn, "OneDnnOutIn"},
                    Case{gemm_onednn, WeightLayout::InOut, "OneDnnInOut"},
                    Case{gemm_reference, WeightLayout::OutIn, "ReferenceOutIn"},
                    Case{gemm_reference, WeightLayout::InOut, "ReferenceInOut"}),
    [](const auto& test) { return test.param.name; });

TEST_P(Linear, MultipliesAndAddsTheBias) {
  Floats out = stale(std::ssize(grad_out));
  linear(gemm, x.data(), weight.data(), bias.data(), out.data(), shape);
  expect_close(out, reference(widen(x), widen(weight), widen(bias)));
}

TEST_P(Linear, NeedsNoBias) {
  Floats out = stale(std::ssize(grad_out));
  linear(gemm, x.data(), weight.data(), nullptr, out.data(), shape);
  expect_close(out, reference(widen(x), widen(weight), Doubles(shape.out_features)));
}

TEST_P(Linear, InputGradientEqualsFiniteDifferences) {
  expect_gradient(
      [&](const Doubles& v) { return dot(reference(v, widen(weight), widen(bias)), grad_out); }, x,
      [&](float* out, Store store) {
        linear_backward_input(gemm, grad_out.data(), weight.data(), out, shape, store);
      });
}

TEST_P(Linear, WeightGradientEqualsFiniteDifferences) {
  expect_gradient(
      [&](const Doubles& v) { return dot(reference(widen(x), v, widen(bias)), grad_out); }, weight,
      [&](float* out, Store store) {
        linear_backward_weight(gemm, grad_out.data(), x.data(), out, shape, store);
      });
}

TEST_P(Linear, BiasGradientEqualsFiniteDifferences) {
  expect_gradient(
      [&](const Doubles& v) { return dot(reference(widen(x), widen(weight), v), grad_out); }, bias,
      [&](float* out, Store store) { linear_backward_bias(grad_out.data(), out, shape, store); });
}

}  // namespace
}  // namespace shardplan::cpu
