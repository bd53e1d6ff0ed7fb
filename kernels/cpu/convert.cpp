#include <algorithm>
#include <array>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

constexpr std::int64_t kBlockElems = 1024;  // stays in the first-level cache

/// `elems` elements from `at` on as float32: in place, or widened into `block`.
const float* loaded(const FloatTensor& x, std::int64_t at, std::int64_t elems, float* block) {
  if (const auto* wide = std::get_if<const float*>(&x)) return *wide + at;
  widen(std::get<const BFloat16*>(x) + at, block, elems);
  return block;
}

SHARDPLAN_CLONE_FOR_AVX2
void widen_range(const BFloat16* x, float* out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = widened(x[i]);
}

SHARDPLAN_CLONE_FOR_AVX2
void narrow_range(const float* x, BFloat16* out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = rounded(x[i]);
}

SHARDPLAN_CLONE_FOR_AVX2
void scale_range(const float* x, float factor, float* out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = x[i] * factor;
}

}  // namespace

void widen(const BFloat16* x, float* out, std::int64_t elems) {
  parallel_ranges(elems, 1,
                  [=](std::int64_t begin, std::int64_t end) { widen_range(x, out, begin, end); });
}

void narrow(const float* x, BFloat16* out, std::int64_t elems) {
  parallel_ranges(elems, 1,
                  [=](std::int64_t begin, std::int64_t end) { narrow_range(x, out, begin, end); });
}

void scale(const float* x, float factor, float* out, std::int64_t elems) {
  parallel_ranges(elems, 1, [=](std::int64_t begin, std::int64_t end) {
    scale_range(x, factor, out, begin, end);
  });
}

void add(const FloatTensor& a, const FloatTensor& b, const MutableFloatTensor& out,
         std::int64_t elems) {
  std::array<float, kBlockElems> block_a;
  std::array<float, kBlockElems> block_b;
  for (std::int64_t at = 0; at < elems; at += kBlockElems) {
    const std::int64_t count = std::min(kBlockElems, elems - at);
    const float* left = loaded(a, at, count, block_a.data());
    const float* right = loaded(b, at, count, block_b.data());
    if (auto* const* wide = std::get_if<float*>(&out)) {
      add(left, right, *wide + at, count);
      continue;
    }
    add(left, right, block_a.data(), count);
    narrow(block_a.data(), std::get<BFloat16*>(out) + at, count);
  }
}

}  // namespace shardplan::cpu
