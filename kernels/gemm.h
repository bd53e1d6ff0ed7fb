#pragma once

#include <cstdint>

namespace shardplan::cpu {

enum class Transpose { No, Yes };

/// Row-major matrix in memory: element (row, column) of the stored matrix is data[row * stride +
/// column].
struct ConstMatrix {
  const float* data;
  std::int64_t stride;  // elements
  Transpose transpose = Transpose::No;
};

/// out[m, n] = alpha * op(a)[m, k] * op(b)[k, n] + beta * out; with beta 0 the old values are not
/// read.
using Gemm = void (*)(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
                      ConstMatrix b, float beta, float* out, std::int64_t out_stride);

/// oneDNN's single-precision product, on the calling thread's OpenMP pool.
void gemm_onednn(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
                 ConstMatrix b, float beta, float* out, std::int64_t out_stride);

/// Fixed order of summation, whatever the shape, the alignment and the thread: for bit-exact runs.
void gemm_reference(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
                    ConstMatrix b, float beta, float* out, std::int64_t out_stride);

}  // namespace shardplan::cpu
