#include "kernels/arithmetic.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

SHARDPLAN_CLONE_FOR_AVX2
void swiglu_range(const float* gate, const float* up, float* out, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = shardplan::swiglu(gate[i], up[i]);
}

SHARDPLAN_CLONE_FOR_AVX2
void swiglu_backward_range(const float* grad_out, const float* gate, const float* up,
                           float* grad_gate, float* grad_up, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const SwiGluGradient gradient = swiglu_gradient(grad_out[i], gate[i], up[i]);
    grad_gate[i] = gradient.gate;
    grad_up[i] = gradient.up;
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
