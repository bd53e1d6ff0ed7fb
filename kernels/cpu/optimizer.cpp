#include <cmath>

#include "kernels/kernels.h"

namespace shardplan::cpu {

// The order of operations is that of torch.optim, which computes the coefficients in double
// precision and rounds them once.
void adam(const float* grad, float grad_scale, float* parameter, float* exp_avg, float* exp_avg_sq,
          std::int64_t elems, const AdamStep& step) {
  const bool decoupled = step.decay == AdamStep::Decay::Decoupled;
  const auto shrink = static_cast<float>(decoupled ? 1 - step.lr * step.weight_decay : 1.0);
  const auto decay = static_cast<float>(decoupled ? 0.0 : step.weight_decay);
  const auto beta1 = static_cast<float>(step.beta1);
  const auto beta2 = static_cast<float>(step.beta2);
  const auto fresh1 = static_cast<float>(1 - step.beta1);
  const auto fresh2 = static_cast<float>(1 - step.beta2);
  const auto root_correction2 = static_cast<float>(std::sqrt(step.bias_correction2));
  const auto step_size = static_cast<float>(step.lr / step.bias_correction1);
  const auto eps = static_cast<float>(step.eps);
  for (std::int64_t i = 0; i < elems; ++i) {
    const float g = grad[i] * grad_scale + decay * parameter[i];
    const float m = beta1 * exp_avg[i] + fresh1 * g;
    const float v = beta2 * exp_avg_sq[i] + fresh2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    parameter[i] =
        parameter[i] * shrink - step_size * (m / (std::sqrt(v) / root_correction2 + eps));
  }
}

void sgd(const float* grad, float grad_scale, float* parameter, float* momentum_buffer,
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

}  // namespace shardplan::cpu
