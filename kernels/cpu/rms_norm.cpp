#include <cmath>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

SHARDPLAN_CLONE_FOR_AVX2
void normalize_row(const float* x, const float* weight, float* out, float* rstd,
                   std::int64_t channels, float epsilon) {
  const double squares =
      lane_sum(channels, [=](std::int64_t c) { return static_cast<double>(x[c]) * x[c]; });
  const double mean_square = squares / static_cast<double>(channels);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean_square + epsilon));
  for (std::int64_t c = 0; c < channels; ++c)
    out[c] = x[c] * scale * weight[c];
  *rstd = scale;
}

// With y = x * rstd and g = grad_out * weight: grad_x = rstd * (g - y * mean(g * y)).
SHARDPLAN_CLONE_FOR_AVX2
void grad_x_row(const float* grad_out, const float* x, const float* weight, float rstd,
                float* grad_x, std::int64_t channels, Store store) {
  const double mean_gy =
      rstd / static_cast<double>(channels) * lane_sum(channels, [=](std::int64_t c) {
        return static_cast<double>(grad_out[c] * weight[c]) * x[c];
      });
  const auto along_x = static_cast<float>(mean_gy * rstd);
  for (std::int64_t c = 0; c < channels; ++c)
    put(grad_x[c], rstd * (grad_out[c] * weight[c] - x[c] * along_x), store);
}

SHARDPLAN_CLONE_FOR_AVX2
void grad_weight_columns(const float* grad_out, const float* x, const float* rstd,
                         float* grad_weight, std::int64_t rows, std::int64_t channels,
                         std::int64_t begin, std::int64_t end, Store store) {
  column_sums(rows, begin, end, grad_weight, store, [=](std::int64_t row, std::int64_t c) {
    return grad_out[row * channels + c] * (x[row * channels + c] * rstd[row]);
  });
}

}  // namespace

void rms_norm(const float* x, const float* weight, float* out, float* rstd, std::int64_t rows,
              std::int64_t channels, float epsilon) {
  parallel_ranges(rows, channels, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      normalize_row(x + row * channels, weight, out + row * channels, rstd + row, channels,
                    epsilon);
  });
}

void rms_norm_backward(const float* grad_out, const float* x, const float* weight,
                       const float* rstd, float* grad_x, float* grad_weight, std::int64_t rows,
                       std::int64_t channels, Store store_x, Store store_weight) {
  parallel_ranges(channels, rows, [=](std::int64_t begin, std::int64_t end) {
    grad_weight_columns(grad_out, x, rstd, grad_weight, rows, channels, begin, end, store_weight);
  });
  parallel_ranges(rows, channels, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      grad_x_row(grad_out + row * channels, x + row * channels, weight, rstd[row],
                 grad_x + row * channels, channels, store_x);
  });
}

}  // namespace shardplan::cpu
