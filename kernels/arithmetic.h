#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/host_device.h"
#include "kernels/shapes.h"

/// What kernels compute for single elements, the same on every device.
namespace shardplan {

/// e^x for x <= 88, within 1 ulp; NaN stays NaN, and what is below the smallest normal number is 0.
/// Unlike std::exp it has no branches, so loops over it are vectorised, and it gives the same bits
/// on every machine.
SHARDPLAN_HOST_DEVICE inline float exponential(float x) {
  // e^x = 2^n e^r with |r| <= ln(2) / 2. Adding 1.5 x 2^23 rounds to the nearest integer and leaves
  // it in the low bits.
  constexpr float kRounder = 12582912.0F;
  const float rounded = x * 1.44269504F + kRounder;
  const float n = rounded - kRounder;
  // ln(2) in two parts (Cody and Waite): n times the first is exact.
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  // Minimax polynomial of Cephes' expf (S. Moshier).
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const std::uint32_t n_as_exponent = std::bit_cast<std::uint32_t>(rounded) << 23;
  const auto power = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + n_as_exponent);
  return x < -87.33F ? 0.0F : power;
}

/// Both to full relative precision, which a difference from 1 would lose.
struct Sigmoid {
  float value;       // 1 / (1 + e^-x)
  float complement;  // 1 - value
};

SHARDPLAN_HOST_DEVICE inline Sigmoid sigmoid(float x) {
  const float e = exponential(-std::abs(x));
  const float larger = 1.0F / (1.0F + e);
  const float smaller = e * larger;
  return x > 0.0F ? Sigmoid{larger, smaller} : Sigmoid{smaller, larger};
}

SHARDPLAN_HOST_DEVICE inline float swiglu(float gate, float up) {
  return gate * sigmoid(gate).value * up;
}

struct SwiGluGradient {
  float gate;
  float up;
};
SHARDPLAN_HOST_DEVICE inline SwiGluGradient swiglu_gradient(float grad, float gate, float up) {
  const Sigmoid s = sigmoid(gate);
  return {grad * up * s.value * (1 + gate * s.complement), grad * gate * s.value};
}

// The constants of the tanh approximation (Hendrycks and Gimpel, "Gaussian Error Linear Units").
constexpr float kSqrt2OverPi = 0.797884560802865355F;
constexpr float kGeluCubic = 0.044715F;

// (1 + tanh(u)) / 2 = sigmoid(2u), which loses no digits where tanh(u) is near -1.
SHARDPLAN_HOST_DEVICE inline Sigmoid gelu_tanh_gate(float x) {
  return sigmoid(2 * kSqrt2OverPi * (x + kGeluCubic * x * x * x));
}

SHARDPLAN_HOST_DEVICE inline float gelu_tanh_slope(float x) {
  const Sigmoid gate = gelu_tanh_gate(x);
  const float inner_slope = 2 * kSqrt2OverPi * (1 + 3 * kGeluCubic * x * x);
  return gate.value + x * gate.value * gate.complement * inner_slope;
}

SHARDPLAN_HOST_DEVICE inline float normal_distribution(float x) {
  return 0.5F * std::erfc(-x / std::numbers::sqrt2_v<float>);
}

SHARDPLAN_HOST_DEVICE inline float gelu_erf_slope(float x) {
  constexpr float kPeak = kSqrt2OverPi / 2;  // density of the normal distribution at 0
  return normal_distribution(x) + x * kPeak * exponential(-0.5F * x * x);
}

/// Angle per position of pair `pair`, by the formulas of transformers' modeling_rope_utils.py
/// (_compute_default_rope_parameters, _compute_linear_..., _compute_llama3_...).
SHARDPLAN_HOST_DEVICE inline float rope_frequency(std::int64_t pair, const RopeShape& shape) {
  const auto factor = static_cast<float>(shape.factor);
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(shape.head_dim);
  const float plain = 1.0F / std::pow(static_cast<float>(shape.theta), exponent);
  if (shape.original_context <= 0) return plain / factor;

  const auto context = static_cast<float>(shape.original_context);
  const auto low = static_cast<float>(shape.low_frequency);
  const auto high = static_cast<float>(shape.high_frequency);
  const float wavelength = 2 * std::numbers::pi_v<float> / plain;
  if (wavelength < context / high) return plain;
  if (wavelength > context / low) return plain / factor;
  const float smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * plain / factor + smooth * plain;
}

/// What changes of an optimizer from step to step. torch.optim computes it in double precision and
/// rounds it once, as all coefficients.
struct StepFactors {
  StepFactors() = default;
  StepFactors(double learning_rate, double bias_correction1, double bias_correction2)
      : lr(learning_rate),
        step_size(static_cast<float>(learning_rate / bias_correction1)),
        root_correction2(static_cast<float>(std::sqrt(bias_correction2))) {}

  double lr = 0;
  float step_size = 0;
  float root_correction2 = 1;
};

struct AdamCoefficients {
  explicit AdamCoefficients(const AdamStep& step)
      : beta1(static_cast<float>(step.beta1)),
        beta2(static_cast<float>(step.beta2)),
        fresh1(static_cast<float>(1 - step.beta1)),
        fresh2(static_cast<float>(1 - step.beta2)),
        eps(static_cast<float>(step.eps)) {
    const bool decoupled = step.decay == AdamStep::Decay::Decoupled;
    decoupled_decay = decoupled ? step.weight_decay : 0.0;
    decay = static_cast<float>(decoupled ? 0.0 : step.weight_decay);
    set({step.lr, step.bias_correction1, step.bias_correction2});
  }

  SHARDPLAN_HOST_DEVICE void set(const StepFactors& now) {
    root_correction2 = now.root_correction2;
    step_size = now.step_size;
    shrink = static_cast<float>(1 - now.lr * decoupled_decay);
  }

  double decoupled_decay;
  float beta1, beta2, fresh1, fresh2, root_correction2, step_size, eps, shrink, decay;
};

struct AdamElement {
  float parameter;
  float exp_avg;
  float exp_avg_sq;
};
// The order of operations is that of torch.optim.
SHARDPLAN_HOST_DEVICE inline AdamElement adam_update(float scaled_grad, const AdamElement& old,
                                                     const AdamCoefficients& c) {
  const float g = scaled_grad + c.decay * old.parameter;
  const float m = c.beta1 * old.exp_avg + c.fresh1 * g;
  const float v = c.beta2 * old.exp_avg_sq + c.fresh2 * g * g;
  return {
      old.parameter * c.shrink - c.step_size * (m / (std::sqrt(v) / c.root_correction2 + c.eps)), m,
      v};
}

struct SgdCoefficients {
  explicit SgdCoefficients(const SgdStep& step)
      : lr(static_cast<float>(step.lr)),
        momentum(static_cast<float>(step.momentum)),
        decay(static_cast<float>(step.weight_decay)) {}

  SHARDPLAN_HOST_DEVICE void set(const StepFactors& now) { lr = static_cast<float>(now.lr); }

  float lr, momentum, decay;
};

/// The number of PyTorch's clip_grad_norm_ that is added to the norm it divides by.
constexpr float kClipEpsilon = 1e-6F;

/// What clip_grad_norm_ multiplies gradients with; `max_norm` 0: they are not clipped.
SHARDPLAN_HOST_DEVICE inline float clip_coefficient(float norm, float max_norm) {
  if (max_norm <= 0) return 1.0F;
  const float coefficient = max_norm / (norm + kClipEpsilon);
  return coefficient < 1.0F ? coefficient : 1.0F;
}

}  // namespace shardplan
