#include <cmath>
#include <numbers>

#include "kernels/cpu/exponential.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

// The constants of the tanh approximation (Hendrycks and Gimpel, "Gaussian Error Linear Units").
constexpr float kSqrt2OverPi = 0.797884560802865355F;
constexpr float kCubic = 0.044715F;

// (1 + tanh(u)) / 2 = sigmoid(2u), which loses no digits where tanh(u) is near -1.
float gelu_tanh(float x) { return x * sigmoid(2 * kSqrt2OverPi * (x + kCubic * x * x * x)); }

float gelu_tanh_slope(float x) {
  const float s = sigmoid(2 * kSqrt2OverPi * (x + kCubic * x * x * x));
  return s + x * s * (1 - s) * 2 * kSqrt2OverPi * (1 + 3 * kCubic * x * x);
}

float normal_cdf(float x) { return 0.5F * std::erfc(-x / std::numbers::sqrt2_v<float>); }

float gelu_erf_slope(float x) {
  const float density =
      exponential(-0.5F * x * x) * (0.5F * kSqrt2OverPi / std::numbers::sqrt2_v<float>);
  return normal_cdf(x) + x * density;
}

}  // namespace

void swiglu(const float* gate, const float* up, float* out, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i)
    out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

void swiglu_backward(const float* grad_out, const float* gate, const float* up, float* grad_gate,
                     float* grad_up, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const float g = gate[i];
    const float s = sigmoid(g);
    const float grad = grad_out[i];
    grad_gate[i] = grad * up[i] * s * (1 + g * (1 - s));
    grad_up[i] = grad * g * s;
  }
}

void gelu(const float* x, float* out, std::int64_t elems, GeluKind kind) {
  if (kind == GeluKind::Tanh)
    for (std::int64_t i = 0; i < elems; ++i)
      out[i] = gelu_tanh(x[i]);
  else
    for (std::int64_t i = 0; i < elems; ++i)
      out[i] = x[i] * normal_cdf(x[i]);
}

void gelu_backward(const float* grad_out, const float* x, float* grad_x, std::int64_t elems,
                   GeluKind kind) {
  if (kind == GeluKind::Tanh)
    for (std::int64_t i = 0; i < elems; ++i)
      grad_x[i] = grad_out[i] * gelu_tanh_slope(x[i]);
  else
    for (std::int64_t i = 0; i < elems; ++i)
      grad_x[i] = grad_out[i] * gelu_erf_slope(x[i]);
}

}  // namespace shardplan::cpu
