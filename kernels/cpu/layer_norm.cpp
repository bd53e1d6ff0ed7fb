#include <cmath>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

SHARDPLAN_CLONE_FOR_AVX2
void normalize_row(const float* x, const float* weight, const float* bias, float* out, float* mean,
                   float* rstd, std::int64_t channels, float epsilon) {
  const auto count = static_cast<double>(channels);
  const double center = lane_sum(channels, [=](std::int64_t c) { return x[c]; }) / count;
  const double variance = lane_sum(channels,
                                   [=](std::int64_t c) {
                                     const double deviation = x[c] - center;
                                     return deviation * deviation;
                                   }) /
                          count;
  const auto shift = static_cast<float>(center);
  const auto scale = static_cast<float>(1.0 / std::sqrt(variance + epsilon));
  for (std::int64_t c = 0; c < channels; ++c)
    out[c] = (x[c] - shift) * scale * weight[c] + bias[c];
  *mean = shift;
  *rstd = scale;
}

// With y = (x - mean) * rstd and g = grad_out * weight:
// grad_x = rstd * (g - mean(g) - y * mean(g * y)).
SHARDPLAN_CLONE_FOR_AVX2
void grad_x_row(const float* grad_out, const float* x, const float* weight, float mean, float rstd,
                float* grad_x, std::int64_t channels, Store store) {
  const auto count = static_cast<double>(channels);
  const auto gradient = [=](std::int64_t c) { return grad_out[c] * weight[c]; };
  const auto normalized = [=](std::int64_t c) { return (x[c] - mean) * rstd; };
  const auto mean_g = static_cast<float>(lane_sum(channels, gradient) / count);
  const auto mean_gy = static_cast<float>(
      lane_sum(channels,
               [=](std::int64_t c) { return static_cast<double>(gradient(c)) * normalized(c); }) /
      count);
  for (std::int64_t c = 0; c < channels; ++c)
    put(grad_x[c], rstd * (gradient(c) - mean_g - normalized(c) * mean_gy), store);
}

SHARDPLAN_CLONE_FOR_AVX2
void grad_weight_columns(const float* grad_out, const float* x, const float* mean,
                         const float* rstd, float* grad_weight, std::int64_t rows,
                         std::int64_t channels, std::int64_t begin, std::int64_t end, Store store) {
  column_sums(rows, begin, end, grad_weight, store, [=](std::int64_t row, std::int64_t c) {
    const std::int64_t i = row * channels + c;
    return grad_out[i] * ((x[i] - mean[row]) * rstd[row]);
  });
}

}  // namespace

void layer_norm(const float* x, const float* weight, const float* bias, float* out, float* mean,
                float* rstd, std::int64_t rows, std::int64_t channels, float epsilon) {
  parallel_ranges(rows, channels, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      normalize_row(x + row * channels, weight, bias, out + row * channels, mean + row, rstd + row,
                    channels, epsilon);
  });
}

void layer_norm_backward(const float* grad_out, const float* x, const float* weight,
                         const float* mean, const float* rstd, float* grad_x, float* grad_weight,
                         float* grad_bias, std::int64_t rows, std::int64_t channels, Store store_x,
                         Store store_weight, Store store_bias) {
  parallel_ranges(channels, rows, [=](std::int64_t begin, std::int64_t end) {
    grad_weight_columns(grad_out, x, mean, rstd, grad_weight, rows, channels, begin, end,
                        store_weight);
  });
  sum_rows(grad_out, grad_bias, rows, channels, store_bias);
  parallel_ranges(rows, channels, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      grad_x_row(grad_out + row * channels, x + row * channels, weight, mean[row], rstd[row],
                 grad_x + row * channels, channels, store_x);
  });
}

}  // namespace shardplan::cpu
