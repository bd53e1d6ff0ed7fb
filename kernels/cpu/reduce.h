#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/kernels.h"

namespace shardplan::cpu {

/// Partial results that are carried side by side: the compiler may not reorder floating-point sums,
/// so the independent chains that vector units need are spelled out, and the order stays fixed. The
/// loops are always inlined, to be compiled for the same machine as their caller.
inline constexpr std::int64_t kLanes = 8;

/// `out` is not read when overwriting: it may hold stale bytes.
inline void put(float& out, float value, Store store) {
  out = store == Store::Accumulate ? out + value : value;
}

/// Sum of term(i) over [0, count) in double precision; the order depends on `count` alone.
template <typename Term>
[[gnu::always_inline]] inline double lane_sum(std::int64_t count, Term term) {
  std::array<double, kLanes> lanes{};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += term(i + lane);
  for (std::int64_t i = whole; i < count; ++i)
    lanes[i - whole] += term(i);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// Largest of values[0, count), which must not be empty; NaNs are passed over.
[[gnu::always_inline]] inline float lane_max(const float* values, std::int64_t count) {
  std::array<float, kLanes> lanes;
  lanes.fill(values[0]);
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  float largest = lanes[0];
  for (const float value : lanes)
    largest = std::max(largest, value);
  for (std::int64_t i = whole; i < count; ++i)
    largest = std::max(largest, values[i]);
  return largest;
}

/// out[column] = sum over the rows, ascending, of term(row, column) for the columns [begin, end),
/// in double precision and rounded once; accumulating adds that. Columns go in blocks whose sums
/// fit on the stack.
template <typename Term>
[[gnu::always_inline]] inline void column_sums(std::int64_t rows, std::int64_t begin,
                                               std::int64_t end, float* out, Store store,
                                               Term term) {
  constexpr std::int64_t kBlock = 256;
  for (; begin < end; begin += kBlock) {
    const std::int64_t width = std::min(kBlock, end - begin);
    std::array<double, kBlock> sums;
    std::fill_n(sums.begin(), width, 0.0);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < width; ++i)
        sums[i] += term(row, begin + i);
    for (std::int64_t i = 0; i < width; ++i)
      put(out[begin + i], static_cast<float>(sums[i]), store);
  }
}

/// out[column] = sum over the rows of x[rows, columns], as column_sums() makes it.
void sum_rows(const float* x, float* out, std::int64_t rows, std::int64_t columns, Store store);

}  // namespace shardplan::cpu
