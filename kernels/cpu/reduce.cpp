#include "kernels/cpu/reduce.h"

#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"

namespace shardplan::cpu {
namespace {

SHARDPLAN_CLONE_FOR_AVX2
double sum_squares_range(const float* x, std::int64_t elems) {
  return lane_sum(elems, [=](std::int64_t i) { return static_cast<double>(x[i]) * x[i]; });
}

SHARDPLAN_CLONE_FOR_AVX2
void add_range(const float* a, const float* b, float* out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = a[i] + b[i];
}

SHARDPLAN_CLONE_FOR_AVX2
void sum_columns(const float* x, float* out, std::int64_t rows, std::int64_t columns,
                 std::int64_t begin, std::int64_t end, Store store) {
  column_sums(rows, begin, end, out, store,
              [=](std::int64_t row, std::int64_t column) { return x[row * columns + column]; });
}

}  // namespace

void sum_rows(const float* x, float* out, std::int64_t rows, std::int64_t columns, Store store) {
  parallel_ranges(columns, rows, [=](std::int64_t begin, std::int64_t end) {
    sum_columns(x, out, rows, columns, begin, end, store);
  });
}

double sum_squares(const float* x, std::int64_t elems) {
  return parallel_sum(elems, 1, [=](std::int64_t begin, std::int64_t end) {
    return sum_squares_range(x + begin, end - begin);
  });
}

void add(const float* a, const float* b, float* out, std::int64_t elems) {
  parallel_ranges(elems, 1,
                  [=](std::int64_t begin, std::int64_t end) { add_range(a, b, out, begin, end); });
}

SHARDPLAN_CLONE_FOR_AVX2
void accumulate(const float* x, float scale, float* out, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i)
    out[i] += x[i] * scale;
}

}  // namespace shardplan::cpu
