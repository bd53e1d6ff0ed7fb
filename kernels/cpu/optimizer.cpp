#include "kernels/arithmetic.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

SHARDPLAN_CLONE_FOR_AVX2
void adam_range(const float* grad, float grad_scale, float* parameter, float* exp_avg,
                float* exp_avg_sq, std::int64_t elems, const AdamCoefficients& c) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const AdamElement updated =
        adam_update(grad[i] * grad_scale, {parameter[i], exp_avg[i], exp_avg_sq[i]}, c);
    exp_avg[i] = updated.exp_avg;
    exp_avg_sq[i] = updated.exp_avg_sq;
    parameter[i] = updated.parameter;
  }
}

/// `momentum_buffer` may be null.
SHARDPLAN_CLONE_FOR_AVX2
void sgd_range(const float* grad, float grad_scale, float* parameter, float* momentum_buffer,
               std::int64_t elems, const SgdCoefficients& c) {
  const auto gradient = [=](std::int64_t i) {
    return grad[i] * grad_scale + c.decay * parameter[i];
  };
  if (!momentum_buffer) {
    for (std::int64_t i = 0; i < elems; ++i)
      parameter[i] -= c.lr * gradient(i);
    return;
  }
  for (std::int64_t i = 0; i < elems; ++i) {
    momentum_buffer[i] = c.momentum * momentum_buffer[i] + gradient(i);
    parameter[i] -= c.lr * momentum_buffer[i];
  }
}

}  // namespace

void adam(const float* grad, float grad_scale, float* parameter, float* exp_avg, float* exp_avg_sq,
          std::int64_t elems, const AdamStep& step) {
  const AdamCoefficients coefficients(step);
  parallel_ranges(elems, 1, [&](std::int64_t begin, std::int64_t end) {
    adam_range(grad + begin, grad_scale, parameter + begin, exp_avg + begin, exp_avg_sq + begin,
               end - begin, coefficients);
  });
}

void sgd(const float* grad, float grad_scale, float* parameter, float* momentum_buffer,
         std::int64_t elems, const SgdStep& step) {
  const SgdCoefficients coefficients(step);
  parallel_ranges(elems, 1, [&](std::int64_t begin, std::int64_t end) {
    sgd_range(grad + begin, grad_scale, parameter + begin,
              momentum_buffer ? momentum_buffer + begin : nullptr, end - begin, coefficients);
  });
}

}  // namespace shardplan::cpu
