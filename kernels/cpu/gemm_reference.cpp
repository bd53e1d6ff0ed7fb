#include <algorithm>
#include <array>

#include "kernels/gemm.h"

namespace shardplan::cpu {
namespace {

// A panel of b: kDepth rows, ascending in k, of kWidth columns; 16 KiB, half of a level-1 cache.
constexpr std::int64_t kDepth = 128;
constexpr std::int64_t kWidth = 32;
using Panel = std::array<float, kDepth * kWidth>;

/// Copies op(b)[k0 .. k0 + depth, j0 .. j0 + width] into the panel; its other columns stay.
void pack(ConstMatrix b, std::int64_t k0, std::int64_t depth, std::int64_t j0, std::int64_t width,
          Panel& panel) {
  if (b.transpose == Transpose::No)
    for (std::int64_t k = 0; k < depth; ++k)
      std::copy_n(b.data + (k0 + k) * b.stride + j0, width, panel.begin() + k * kWidth);
  else
    for (std::int64_t j = 0; j < width; ++j)
      for (std::int64_t k = 0; k < depth; ++k)
        panel[k * kWidth + j] = b.data[(j0 + j) * b.stride + k0 + k];
}

/// sums[j] = sum over ascending k of a[k * step] * panel[k, j].
void multiply_row(const float* a, std::int64_t step, const Panel& panel, std::int64_t depth,
                  std::array<float, kWidth>& sums) {
  std::array<float, kWidth> registers{};
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < kWidth; ++j)
      registers[j] += a[k * step] * panel[k * kWidth + j];
  sums = registers;
}

}  // namespace

// An element of `out` is the sum, in ascending order, of partial sums over kDepth values of k, each
// in ascending order too: nothing but k decides how it is rounded.
void gemm_reference(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
                    ConstMatrix b, float beta, float* out, std::int64_t out_stride) {
  const bool rows_are_contiguous = a.transpose == Transpose::No;
  const std::int64_t row_step = rows_are_contiguous ? a.stride : 1;
  const std::int64_t k_step = rows_are_contiguous ? 1 : a.stride;
  Panel panel{};
  std::array<float, kWidth> sums;
  for (std::int64_t j0 = 0; j0 < n; j0 += kWidth) {
    const std::int64_t width = std::min(kWidth, n - j0);
    for (std::int64_t k0 = 0; k0 < k; k0 += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - k0);
      const float keep = k0 == 0 ? beta : 1.0F;
      pack(b, k0, depth, j0, width, panel);
      for (std::int64_t i = 0; i < m; ++i) {
        multiply_row(a.data + i * row_step + k0 * k_step, k_step, panel, depth, sums);
        float* out_row = out + i * out_stride + j0;
        for (std::int64_t j = 0; j < width; ++j)
          out_row[j] = keep == 0.0F ? alpha * sums[j] : keep * out_row[j] + alpha * sums[j];
      }
    }
  }
}

}  // namespace shardplan::cpu
