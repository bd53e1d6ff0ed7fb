#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/arithmetic.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

constexpr std::int64_t kBlock = 64;  // pairs whose tables fit on the stack
using Table = std::array<float, kBlock>;

/// Rotates pairs (x[i], x[half + i]) for i in [0, pairs).
SHARDPLAN_CLONE_FOR_AVX2
void rotate(const float* x, float* out, std::int64_t half, std::int64_t pairs, const float* cosine,
            const float* sine) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float first = x[i];
    const float second = x[half + i];
    out[i] = first * cosine[i] - second * sine[i];
    out[half + i] = second * cosine[i] + first * sine[i];
  }
}

/// The pairs [begin, begin + pairs) of every head at the times of `times`.
void rotate_pairs(const float* x, float* out, const RopeShape& shape, RopeDirection direction,
                  std::int64_t begin, std::int64_t pairs, Range times) {
  const float sign = direction == RopeDirection::Forward ? 1.0F : -1.0F;
  Table frequencies;
  for (std::int64_t i = 0; i < pairs; ++i)
    frequencies[i] = rope_frequency(begin + i, shape);
  for (std::int64_t t = times.begin; t < times.end; ++t) {
    Table cosine;
    Table sine;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(t) * frequencies[i];
      cosine[i] = std::cos(angle);
      sine[i] = sign * std::sin(angle);
    }
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t at =
            ((b * shape.time + t) * shape.heads + head) * shape.head_dim + begin;
        rotate(x + at, out + at, shape.head_dim / 2, pairs, cosine.data(), sine.data());
      }
  }
}

}  // namespace

void rope(const float* x, float* out, const RopeShape& shape, RopeDirection direction) {
  const std::int64_t half = shape.head_dim / 2;
  parallel_ranges(shape.time, shape.batch * shape.heads * shape.head_dim,
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t begin = 0; begin < half; begin += kBlock)
                      rotate_pairs(x, out, shape, direction, begin, std::min(kBlock, half - begin),
                                   {first, last});
                  });
}

}  // namespace shardplan::cpu
