#include "runtime/comm/rank_order_sum.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/bfloat16.h"
#include "kernels/kernels.h"
#include "plans/error.h"

namespace shardplan {
namespace {

constexpr std::size_t kBlockElems = 2048;  // of a sum; stays in the first-level cache
constexpr std::size_t kCacheLine = 64;     // bytes; slices of different members do not share one

void add_scaled(const float* x, double scale, float* out, std::size_t elems) {
  cpu::accumulate(x, static_cast<float>(scale), out, static_cast<std::int64_t>(elems));
}
void add_scaled(const double* x, double scale, double* out, std::size_t elems) {
  for (std::size_t i = 0; i < elems; ++i)
    out[i] += x[i] * scale;
}
void add_scaled(const BFloat16* x, double scale, float* out, std::size_t elems) {
  for (std::size_t i = 0; i < elems; ++i)
    out[i] += widened(x[i]) * static_cast<float>(scale);
}

/// What elements of type T are summed in.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
T stored(Sum<T> value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return rounded(value);
  else
    return value;
}

/// Elements [first, first + elems) of post_scale * sum of pre_scale * contribution, in rank order.
/// `out` may be the same elements of a contribution: a block is read before it is written.
template <typename T>
void sum(std::span<const Contribution> parts, std::size_t first, std::size_t elems, T* out) {
  const auto post_scale = static_cast<Sum<T>>(parts.front().post_scale);
  std::array<Sum<T>, kBlockElems> block;
  for (std::size_t done = 0; done < elems; done += kBlockElems) {
    const std::size_t count = std::min(kBlockElems, elems - done);
    std::fill_n(block.begin(), count, Sum<T>{0});
    for (const Contribution& part : parts)
      add_scaled(reinterpret_cast<const T*>(part.data) + first + done, part.pre_scale, block.data(),
                 count);
    for (std::size_t i = 0; i < count; ++i)
      out[done + i] = stored<T>(block[i] * post_scale);
  }
}

template <typename T>
void sum_bytes(std::span<const Contribution> parts, std::size_t first_byte,
               std::span<std::byte> out) {
  sum(parts, first_byte / sizeof(T), out.size() / sizeof(T), reinterpret_cast<T*>(out.data()));
}

}  // namespace

void sum_in_rank_order(std::span<const Contribution> parts, std::size_t first_byte,
                       std::span<std::byte> out) {
  switch (parts.front().dtype) {
    case Dtype::Float32: return sum_bytes<float>(parts, first_byte, out);
    case Dtype::Float64: return sum_bytes<double>(parts, first_byte, out);
    case Dtype::BFloat16: return sum_bytes<BFloat16>(parts, first_byte, out);
    default: check(false, "sums are over float32, float64 or bfloat16");
  }
}

Slice slice_of(std::size_t bytes, std::size_t members, std::size_t member) {
  const std::size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  const std::size_t chunk = (lines + members - 1) / members * kCacheLine;
  const std::size_t at = std::min(bytes, chunk * member);
  return {at, std::min(bytes - at, chunk)};
}

}  // namespace shardplan
