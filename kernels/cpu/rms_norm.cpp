#include <cmath>

#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {

void rms_norm(const float* x, const float* weight, float* out, float* rstd, std::int64_t rows,
              std::int64_t channels, float epsilon) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* x_row = x + row * channels;
    float* out_row = out + row * channels;
    const double mean_square = sum_squares(x_row, channels) / static_cast<double>(channels);
    const auto scale = static_cast<float>(1.0 / std::sqrt(mean_square + epsilon));
    for (std::int64_t c = 0; c < channels; ++c)
      out_row[c] = x_row[c] * scale * weight[c];
    rstd[row] = scale;
  }
}

// With y = x * rstd and g = grad_out * weight: grad_x = rstd * (g - y * mean(g * y)).
void rms_norm_backward(const float* grad_out, const float* x, const float* weight,
                       const float* rstd, float* grad_x, float* grad_weight, std::int64_t rows,
                       std::int64_t channels, Store store_x, Store store_weight) {
  column_sums(rows, channels, grad_weight, store_weight, [=](std::int64_t row, std::int64_t c) {
    return grad_out[row * channels + c] * (x[row * channels + c] * rstd[row]);
  });
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* grad_row = grad_out + row * channels;
    const float* x_row = x + row * channels;
    float* grad_x_row = grad_x + row * channels;
    const float scale = rstd[row];
    const double mean_gy =
        scale / static_cast<double>(channels) * lane_sum(channels, [=](std::int64_t c) {
          return static_cast<double>(grad_row[c] * weight[c]) * x_row[c];
        });
    const auto along_x = static_cast<float>(mean_gy * scale);
    for (std::int64_t c = 0; c < channels; ++c)
      put(grad_x_row[c], scale * (grad_row[c] * weight[c] - x_row[c] * along_x), store_x);
  }
}

}  // namespace shardplan::cpu
