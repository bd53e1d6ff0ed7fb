#include <cmath>

#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {

void layer_norm(const float* x, const float* weight, const float* bias, float* out, float* mean,
                float* rstd, std::int64_t rows, std::int64_t channels, float epsilon) {
  const auto count = static_cast<double>(channels);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* x_row = x + row * channels;
    float* out_row = out + row * channels;
    const double center = lane_sum(channels, [=](std::int64_t c) { return x_row[c]; }) / count;
    const double variance = lane_sum(channels,
                                     [=](std::int64_t c) {
                                       const double deviation = x_row[c] - center;
                                       return deviation * deviation;
                                     }) /
                            count;
    mean[row] = static_cast<float>(center);
    rstd[row] = static_cast<float>(1.0 / std::sqrt(variance + epsilon));
    const float shift = mean[row];
    const float scale = rstd[row];
    for (std::int64_t c = 0; c < channels; ++c)
      out_row[c] = (x_row[c] - shift) * scale * weight[c] + bias[c];
  }
}

// With y = (x - mean) * rstd and g = grad_out * weight:
// grad_x = rstd * (g - mean(g) - y * mean(g * y)).
void layer_norm_backward(const float* grad_out, const float* x, const float* weight,
                         const float* mean, const float* rstd, float* grad_x, float* grad_weight,
                         float* grad_bias, std::int64_t rows, std::int64_t channels, Store store_x,
                         Store store_weight, Store store_bias) {
  column_sums(rows, channels, grad_weight, store_weight, [=](std::int64_t row, std::int64_t c) {
    const std::int64_t i = row * channels + c;
    return grad_out[i] * ((x[i] - mean[row]) * rstd[row]);
  });
  column_sums(rows, channels, grad_bias, store_bias,
              [=](std::int64_t row, std::int64_t c) { return grad_out[row * channels + c]; });
  const auto count = static_cast<double>(channels);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* grad_row = grad_out + row * channels;
    const float* x_row = x + row * channels;
    float* grad_x_row = grad_x + row * channels;
    const float shift = mean[row];
    const float scale = rstd[row];
    const auto gradient = [=](std::int64_t c) { return grad_row[c] * weight[c]; };
    const auto normalized = [=](std::int64_t c) { return (x_row[c] - shift) * scale; };
    const auto mean_g = static_cast<float>(lane_sum(channels, gradient) / count);
    const auto mean_gy = static_cast<float>(
        lane_sum(channels,
                 [=](std::int64_t c) { return static_cast<double>(gradient(c)) * normalized(c); }) /
        count);
    for (std::int64_t c = 0; c < channels; ++c)
      put(grad_x_row[c], scale * (gradient(c) - mean_g - normalized(c) * mean_gy), store_x);
  }
}

}  // namespace shardplan::cpu
