#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "kernels/bfloat16.h"

namespace shardplan::cuda {

/// Elements that a thread handles at once: 16 bytes of bfloat16, twice that of float32.
constexpr int kPackElems = 8;

/// Elements [first, first + count) of a tensor; `count` is at most kPackElems.
struct Pack {
  std::int64_t first;
  int count;
};

struct PackValues {
  float value[kPackElems];

  __device__ float& operator[](int i) { return value[i]; }
  __device__ float operator[](int i) const { return value[i]; }
};

/// Calls body(i) for i in [0, count), at most kPackElems. The loop has a constant length and is
/// unrolled, so that values stay in registers: those cannot be indexed.
template <typename Body>
__device__ void for_each_below(std::size_t count, Body body) {
  for (int i = 0; i < kPackElems; ++i)
    if (static_cast<std::size_t>(i) < count) body(i);
}

/// Whether 16 bytes can be moved at once.
__device__ inline bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// A tensor in device memory that a kernel reads, of float32 or bfloat16: one of the two spans. All
/// threads of a launch take the same of two branches.
class ConstFloats {
 public:
  ConstFloats() = default;
  __host__ __device__ ConstFloats(const float* data, std::int64_t elems) : wide_(data, elems) {}
  __host__ __device__ ConstFloats(const BFloat16* data, std::int64_t elems)
      : narrow_(data, elems) {}

  __host__ __device__ std::int64_t size() const {
    return static_cast<std::int64_t>(wide_.size() + narrow_.size());
  }
  bool is_narrow() const { return !narrow_.empty(); }
  /// What of it is read; for who watches launches.
  std::span<const std::byte> bytes() const {
    return narrow_.empty() ? std::as_bytes(wide_) : std::as_bytes(narrow_);
  }
  ConstFloats from(std::int64_t first) const {
    return narrow_.empty() ? ConstFloats(wide_.data() + first, size() - first)
                           : ConstFloats(narrow_.data() + first, size() - first);
  }

  __device__ float operator[](std::int64_t i) const {
    return narrow_.empty() ? wide_[i] : widened(narrow_[i]);
  }
  /// What is beyond the pack's count is 0.
  __device__ PackValues load(Pack pack) const {
    PackValues values{};
    if (narrow_.empty())
      load_wide(wide_.subspan(pack.first, pack.count), values);
    else
      load_narrow(narrow_.subspan(pack.first, pack.count), values);
    return values;
  }

 private:
  static __device__ void load_wide(std::span<const float> from, PackValues& values) {
    if (from.size() < kPackElems || !is_aligned(from.data())) {
      for_each_below(from.size(), [&](int i) { values.value[i] = from[i]; });
      return;
    }
    const auto* quads = reinterpret_cast<const float4*>(from.data());
    const float4 low = quads[0];
    const float4 high = quads[1];
    values = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  }
  static __device__ void load_narrow(std::span<const BFloat16> from, PackValues& values) {
    if (from.size() < kPackElems || !is_aligned(from.data())) {
      for_each_below(from.size(), [&](int i) { values.value[i] = widened(from[i]); });
      return;
    }
    const uint4 raw = *reinterpret_cast<const uint4*>(from.data());
    const std::uint32_t pairs[] = {raw.x, raw.y, raw.z, raw.w};
    for (int i = 0; i < 4; ++i) {
      values.value[2 * i] = std::bit_cast<float>(pairs[i] << 16);
      values.value[2 * i + 1] = std::bit_cast<float>(pairs[i] & 0xffff0000U);
    }
  }

  std::span<const float> wide_;
  std::span<const BFloat16> narrow_;
};

/// A tensor that a kernel writes, and may read.
class Floats {
 public:
  Floats() = default;
  __host__ __device__ Floats(float* data, std::int64_t elems) : wide_(data, elems) {}
  __host__ __device__ Floats(BFloat16* data, std::int64_t elems) : narrow_(data, elems) {}

  __host__ __device__ std::int64_t size() const {
    return static_cast<std::int64_t>(wide_.size() + narrow_.size());
  }
  bool is_narrow() const { return !narrow_.empty(); }
  std::span<std::byte> bytes() const {
    return narrow_.empty() ? std::as_writable_bytes(wide_) : std::as_writable_bytes(narrow_);
  }
  Floats from(std::int64_t first) const {
    return narrow_.empty() ? Floats(wide_.data() + first, size() - first)
                           : Floats(narrow_.data() + first, size() - first);
  }

  __device__ float operator[](std::int64_t i) const {
    return narrow_.empty() ? wide_[i] : widened(narrow_[i]);
  }
  /// Rounds where it must. What is added to is rounded before, too.
  __device__ void put(std::int64_t i, float value, bool accumulate = false) const {
    const float stored = accumulate ? (*this)[i] + value : value;
    if (narrow_.empty())
      wide_[i] = stored;
    else
      narrow_[i] = rounded(stored);
  }
  __device__ PackValues load(Pack pack) const { return as_const().load(pack); }
  __device__ void store(Pack pack, const PackValues& values) const {
    if (narrow_.empty())
      store_wide(wide_.subspan(pack.first, pack.count), values);
    else
      store_narrow(narrow_.subspan(pack.first, pack.count), values);
  }

 private:
  __device__ ConstFloats as_const() const {
    return narrow_.empty() ? ConstFloats(wide_.data(), static_cast<std::int64_t>(wide_.size()))
                           : ConstFloats(narrow_.data(), static_cast<std::int64_t>(narrow_.size()));
  }
  static __device__ void store_wide(std::span<float> to, const PackValues& values) {
    const auto& v = values.value;
    if (to.size() < kPackElems || !is_aligned(to.data())) {
      for_each_below(to.size(), [&](int i) { to[i] = v[i]; });
      return;
    }
    auto* quads = reinterpret_cast<float4*>(to.data());
    quads[0] = make_float4(v[0], v[1], v[2], v[3]);
    quads[1] = make_float4(v[4], v[5], v[6], v[7]);
  }
  static __device__ void store_narrow(std::span<BFloat16> to, const PackValues& values) {
    const auto& v = values.value;
    if (to.size() < kPackElems || !is_aligned(to.data())) {
      for_each_below(to.size(), [&](int i) { to[i] = rounded(v[i]); });
      return;
    }
    std::uint32_t pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] = static_cast<std::uint32_t>(rounded(v[2 * i])) |
                 static_cast<std::uint32_t>(rounded(v[2 * i + 1])) << 16;
    *reinterpret_cast<uint4*>(to.data()) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }

  std::span<float> wide_;
  std::span<BFloat16> narrow_;
};

}  // namespace shardplan::cuda
