#include <cmath>
#include <numbers>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

// The constants of the tanh approximation (Hendrycks and Gimpel, "Gaussian Error Linear Units").
constexpr float kSqrt2OverPi = 0.797884560802865355F;
constexpr float kCubic = 0.044715F;

// (1 + tanh(u)) / 2 = sigmoid(2u), which loses no digits where tanh(u) is near -1.
Sigmoid gelu_tanh_gate(float x) { return sigmoid(2 * kSqrt2OverPi * (x + kCubic * x * x * x)); }

float gelu_tanh_slope(float x) {
  const Sigmoid gate = gelu_tanh_gate(x);
  const float inner_slope = 2 * kSqrt2OverPi * (1 + 3 * kCubic * x * x);
  return gate.value + x * gate.value * gate.complement * inner_slope;
}

float normal_distribution(float x) { return 0.5F * std::erfc(-x / std::numbers::sqrt2_v<float>); }

float gelu_erf_slope(float x) {
  constexpr float kPeak = kSqrt2OverPi / 2;  // density of the normal distribution at 0
  return normal_distribution(x) + x * kPeak * exponential(-0.5F * x * x);
}

SHARDPLAN_CLONE_FOR_AVX2
void swiglu_range(const float* gate, const float* up, float* out, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = gate[i] * sigmoid(gate[i]).value * up[i];
}

SHARDPLAN_CLONE_FOR_AVX2
void swiglu_backward_range(const float* grad_out, const float* gate, const float* up,
                           float* grad_gate, float* grad_up, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = gate[i];
    const Sigmoid s = sigmoid(g);
    const float grad = grad_out[i];
    grad_gate[i] = grad * up[i] * s.value * (1 + g * s.complement);
    grad_up[i] = grad * g * s.value;
  }
}

SHARDPLAN_CLONE_FOR_AVX2
void gelu_range(const float* x, float* out, std::int64_t begin, std::int64_t end, GeluKind kind) {
  if (kind == GeluKind::Tanh)
    for (std::int64_t i = begin; i < end; ++i)
      out[i] = x[i] * gelu_tanh_gate(x[i]).value;
  else
    for (std::int64_t i = begin; i < end; ++i)
      out[i] = x[i] * normal_distribution(x[i]);
}

SHARDPLAN_CLONE_FOR_AVX2
void gelu_backward_range(const float* grad_out, const float* x, float* grad_x, std::int64_t begin,
                         std::int64_t end, GeluKind kind) {
  if (kind == GeluKind::Tanh)
    for (std::int64_t i = begin; i < end; ++i)
      grad_x[i] = grad_out[i] * gelu_tanh_slope(x[i]);
  else
    for (std::int64_t i = begin; i < end; ++i)
      grad_x[i] = grad_out[i] * gelu_erf_slope(x[i]);
}

}  // namespace

void swiglu(const float* gate, const float* up, float* out, std::int64_t elems) {
  parallel_ranges(elems, 1, [=](std::int64_t begin, std::int64_t end) {
    swiglu_range(gate, up, out, begin, end);
  });
}

void swiglu_backward(const float* grad_out, const float* gate, const float* up, float* grad_gate,
                     float* grad_up, std::int64_t elems) {
  parallel_ranges(elems, 1, [=](std::int64_t begin, std::int64_t end) {
    swiglu_backward_range(grad_out, gate, up, grad_gate, grad_up, begin, end);
  });
}

void gelu(const float* x, float* out, std::int64_t elems, GeluKind kind) {
  parallel_ranges(elems, 1, [=](std::int64_t begin, std::int64_t end) {
    gelu_range(x, out, begin, end, kind);
  });
}

void gelu_backward(const float* grad_out, const float* x, float* grad_x, std::int64_t elems,
                   GeluKind kind) {
  parallel_ranges(elems, 1, [=](std::int64_t begin, std::int64_t end) {
    gelu_backward_range(grad_out, x, grad_x, begin, end, kind);
  });
}

}  // namespace shardplan::cpu
