#include "kernels/kernels.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

constexpr std::int64_t kElems = 509;
constexpr int kSteps = 5;

Floats gradient_of(int step) { return random_floats(kElems, 100 + step, 0.1F); }

/// One element of torch.optim.Adam and AdamW, from their documentation.
struct AdamReference {
  double parameter, m = 0, v = 0;

  void update(double g, const AdamStep& s) {
    if (s.decay == AdamStep::Decay::Decoupled)
      parameter -= s.lr * s.weight_decay * parameter;
    else
      g += s.weight_decay * parameter;
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    parameter -= s.lr * (m / s.bias_correction1) / (std::sqrt(v / s.bias_correction2) + s.eps);
  }
};

AdamStep adam_step(int step, AdamStep::Decay decay) {
  return {.lr = 2e-3,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .eps = 1e-8,
          .weight_decay = 0.1,
          .bias_correction1 = 1 - std::pow(0.9, step),
          .bias_correction2 = 1 - std::pow(0.999, step),
          .decay = decay};
}

void expect_adam_follows_reference(AdamStep::Decay decay) {
  const float clip = 0.75F;
  const Floats initial = random_floats(kElems, 1);
  Floats parameter = initial, m(kElems), v(kElems);
  std::vector<AdamReference> reference;
  for (const float value : initial)
    reference.push_back({value});
  for (int step = 1; step <= kSteps; ++step) {
    const Floats grad = gradient_of(step);
    adam(grad.data(), clip, parameter.data(), m.data(), v.data(), kElems, adam_step(step, decay));
    for (std::int64_t i = 0; i < kElems; ++i)
      reference[i].update(static_cast<double>(grad[i]) * clip, adam_step(step, decay));
  }
  // The updates, not the parameters: they are where the digits are.
  Floats moved, m_of_v;
  Doubles expected_move, expected_m, expected_v;
  for (std::int64_t i = 0; i < kElems; ++i) {
    moved.push_back(parameter[i] - initial[i]);
    expected_move.push_back(reference[i].parameter - initial[i]);
    expected_m.push_back(reference[i].m);
    expected_v.push_back(reference[i].v);
  }
  expect_close(moved, expected_move, 5e-5);  // each step rounds a parameter near 1 by 6e-8
  expect_close(m, expected_m, 5e-7);
  expect_close(v, expected_v, 5e-7);
}

TEST(Adam, WithDecoupledDecayIsAdamW) { expect_adam_follows_reference(AdamStep::Decay::Decoupled); }

TEST(Adam, WithCoupledDecayAddsItToTheGradient) {
  expect_adam_follows_reference(AdamStep::Decay::Coupled);
}

TEST(Adam, FirstStepMovesByTheLearningRate) {
  // m / sqrt(v) is the gradient's sign; 1 - 0.999 in single precision would be off by 6e-6.
  AdamStep step = adam_step(1, AdamStep::Decay::Decoupled);
  step.weight_decay = 0;
  const Floats grad{3.0F, -0.5F};
  Floats parameter(2), m(2), v(2);
  adam(grad.data(), 1.0F, parameter.data(), m.data(), v.data(), 2, step);
  EXPECT_NEAR(parameter[0], -2e-3, 2e-3 * 3e-7);
  EXPECT_NEAR(parameter[1], 2e-3, 2e-3 * 3e-7);
}

TEST(Sgd, FollowsTheFormulaWithMomentumAndDecay) {
  const SgdStep step{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01};
  const float clip = 0.5F;
  Floats parameter = random_floats(kElems, 1);
  Floats buffer(kElems);
  Doubles expected = widen(parameter);
  Doubles expected_buffer(kElems);
  for (int s = 1; s <= kSteps; ++s) {
    const Floats grad = gradient_of(s);
    sgd(grad.data(), clip, parameter.data(), buffer.data(), kElems, step);
    for (std::int64_t i = 0; i < kElems; ++i) {
      expected_buffer[i] = 0.9 * expected_buffer[i] + grad[i] * clip + 0.01 * expected[i];
      expected[i] -= 0.1 * expected_buffer[i];
    }
  }
  expect_close(buffer, expected_buffer, 1e-6);
  expect_close(parameter, expected, 1e-6);
}

TEST(Sgd, NeedsNoMomentum) {
  const Floats grad{1.0F, 2.0F, 3.0F};
  Floats parameter{1.0F, 1.0F, 1.0F};
  sgd(grad.data(), 0.5F, parameter.data(), nullptr, 3,
      {.lr = 0.5, .momentum = 0, .weight_decay = 0});
  EXPECT_EQ(parameter, (Floats{0.75F, 0.5F, 0.25F}));
}

}  // namespace
}  // namespace shardplan::cpu
