#include "kernels/cpu/reduce.h"

namespace shardplan::cpu {

double sum_squares(const float* x, std::int64_t elems) {
  return lane_sum(elems, [=](std::int64_t i) { return static_cast<double>(x[i]) * x[i]; });
}

void add(const float* a, const float* b, float* out, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i)
    out[i] = a[i] + b[i];
}

void accumulate(const float* x, float scale, float* out, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i)
    out[i] += x[i] * scale;
}

}  // namespace shardplan::cpu
