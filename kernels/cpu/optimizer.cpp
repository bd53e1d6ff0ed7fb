#include <cmath>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

/// torch.optim computes the coefficients in double precision and rounds them once.
struct AdamCoefficients {
  explicit AdamCoefficients(const AdamStep& step)
      : beta1(static_cast<float>(step.beta1)),
        beta2(static_cast<float>(step.beta2)),
        fresh1(static_cast<float>(1 - step.beta1)),
        fresh2(static_cast<float>(1 - step.beta2)),
        root_correction2(static_cast<float>(std::sqrt(step.bias_correction2))),
        step_size(static_cast<float>(step.lr / step.bias_correction1)),
        eps(static_cast<float>(step.eps)) {
    const bool decoupled = step.decay == AdamStep::Decay::Decoupled;
    shrink = static_cast<float>(decoupled ? 1 - step.lr * step.weight_decay : 1.0);
    decay = static_cast<float>(decoupled ? 0.0 : step.weight_decay);
  }

  float beta1, beta2, fresh1, fresh2, root_correction2, step_size, eps, shrink, decay;
};

// The order of operations is that of torch.optim.
SHARDPLAN_CLONE_FOR_AVX2
void adam_range(const float* grad, float grad_scale, float* parameter, float* exp_avg,
                float* exp_avg_sq, std::int64_t elems, const AdamCoefficients& c) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const float g = grad[i] * grad_scale + c.decay * parameter[i];
    const float m = c.beta1 * exp_avg[i] + c.fresh1 * g;
    const float v = c.beta2 * exp_avg_sq[i] + c.fresh2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    parameter[i] =
        parameter[i] * c.shrink - c.step_size * (m / (std::sqrt(v) / c.root_correction2 + c.eps));
  }
}

/// `momentum_buffer` may be null.
SHARDPLAN_CLONE_FOR_AVX2
void sgd_range(const float* grad, float grad_scale, float* parameter, float* momentum_buffer,
               std::int64_t elems, const SgdStep& step) {
  const auto lr = static_cast<float>(step.lr);
  const auto momentum = static_cast<float>(step.momentum);
  const auto decay = static_cast<float>(step.weight_decay);
  const auto gradient = [=](std::int64_t i) { return grad[i] * grad_scale + decay * parameter[i]; };
  if (!momentum_buffer) {
    for (std::int64_t i = 0; i < elems; ++i)
      parameter[i] -= lr * gradient(i);
    return;
  }
  for (std::int64_t i = 0; i < elems; ++i) {
    momentum_buffer[i] = momentum * momentum_buffer[i] + gradient(i);
    parameter[i] -= lr * momentum_buffer[i];
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
  parallel_ranges(elems, 1, [&](std::int64_t begin, std::int64_t end) {
    sgd_range(grad + begin, grad_scale, parameter + begin,
              momentum_buffer ? momentum_buffer + begin : nullptr, end - begin, step);
  });
}

}  // namespace shardplan::cpu
