#include <oneapi/dnnl/dnnl.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/gemm.h"
#include "plans/error.h"

namespace shardplan::cpu {
namespace {

/// oneDNN 2.6 multiplies what is small by the measure of its nocopy_checker_avx2 in place. With a
/// transposed a it then takes longer than with operands that are laid out first, and sums in parts
/// of kDepth: the results of two micro-steps would not be those of two ranks, bit for bit.
bool is_better_laid_out(std::int64_t m, std::int64_t n, std::int64_t k, ConstMatrix a,
                        ConstMatrix b) {
  constexpr double kSmall = 0.0038;
  constexpr std::int64_t kDepth = 64;
  return a.transpose == Transpose::Yes && b.transpose == Transpose::No && k > kDepth &&
         1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n) >= kSmall;
}

/// A block of each operand, of a thread that multiplies.
struct Blocks {
  static constexpr std::int64_t kWidth = 512;
  static constexpr std::int64_t kDepth = 256;  // both blocks stay in a second-level cache
  // oneDNN 2.6 takes 8.4 instead of 6.1 ms for 512 x 512 x 1024 when b begins at 32 bytes.
  static constexpr std::int64_t kOffB = 4;

  Blocks() : memory(static_cast<float*>(std::aligned_alloc(64, 2 * kDepth * kWidth * 4 + 64))) {
    if (!memory) throw SystemError("cannot allocate the blocks of a matrix product");
  }
  float* a() const { return memory.get(); }
  float* b() const { return memory.get() + kWidth * kDepth + kOffB; }

  struct Free {
    void operator()(float* floats) const { std::free(floats); }
  };
  std::unique_ptr<float, Free> memory;
};

constexpr std::int64_t kTile = 16;  // floats of a cache line

/// out[columns, rows] = the transpose of x[rows, columns], for at most kTile of each.
SHARDPLAN_CLONE_FOR_AVX2
void lay_out_tile(const float* x, std::int64_t x_stride, std::int64_t rows, std::int64_t columns,
                  float* out, std::int64_t out_stride) {
  std::array<float, kTile * kTile> tile;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      tile[column * kTile + row] = x[row * x_stride + column];
  for (std::int64_t column = 0; column < columns; ++column)
    for (std::int64_t row = 0; row < rows; ++row)
      out[column * out_stride + row] = tile[column * kTile + row];
}

/// out[columns, rows] = the transpose of x[rows, columns].
void lay_out(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
             float* out) {
  parallel_ranges(
      (rows + kTile - 1) / kTile, kTile * columns, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin * kTile; row < std::min(end * kTile, rows); row += kTile)
          for (std::int64_t column = 0; column < columns; column += kTile)
            lay_out_tile(x + row * stride + column, stride, std::min(kTile, rows - row),
                         std::min(kTile, columns - column), out + column * rows + row, rows);
      });
}

/// out[rows, columns] = x[rows, columns], dense.
void gather(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
            float* out) {
  parallel_ranges(rows, columns, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      std::copy_n(x + row * stride, columns, out + row * columns);
  });
}

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
              ConstMatrix b, float beta, float* out, std::int64_t out_stride) {
  const auto letter = [](Transpose transpose) { return transpose == Transpose::Yes ? 'T' : 'N'; };
  const dnnl_status_t status =
      dnnl_sgemm(letter(a.transpose), letter(b.transpose), m, n, k, alpha, a.data, a.stride, b.data,
                 b.stride, beta, out, out_stride);
  check(status != dnnl_invalid_arguments, "sizes and strides of a matrix product agree");
  if (status != dnnl_success)
    throw SystemError(fmt::format("oneDNN: the matrix product {} x {} x {} failed with status {}",
                                  m, n, k, static_cast<int>(status)));
}

/// As gemm_onednn(), for a transposed a and a plain b, block by block.
void multiply_blocks(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
                     ConstMatrix b, float beta, float* out, std::int64_t out_stride) {
  thread_local const Blocks blocks;
  for (std::int64_t k0 = 0; k0 < k; k0 += Blocks::kDepth)
    for (std::int64_t j0 = 0; j0 < n; j0 += Blocks::kWidth) {
      const std::int64_t depth = std::min(Blocks::kDepth, k - k0);
      const std::int64_t columns = std::min(Blocks::kWidth, n - j0);
      gather(b.data + k0 * b.stride + j0, b.stride, depth, columns, blocks.b());
      for (std::int64_t i0 = 0; i0 < m; i0 += Blocks::kWidth) {
        const std::int64_t rows = std::min(Blocks::kWidth, m - i0);
        lay_out(a.data + k0 * a.stride + i0, a.stride, depth, rows, blocks.a());
        multiply(rows, columns, depth, alpha, {blocks.a(), depth}, {blocks.b(), columns},
                 k0 == 0 ? beta : 1.0F, out + i0 * out_stride + j0, out_stride);
      }
    }
}

}  // namespace

void gemm_onednn(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
                 ConstMatrix b, float beta, float* out, std::int64_t out_stride) {
  const auto kernel = is_better_laid_out(m, n, k, a, b) ? multiply_blocks : multiply;
  kernel(m, n, k, alpha, a, b, beta, out, out_stride);
}

}  // namespace shardplan::cpu
