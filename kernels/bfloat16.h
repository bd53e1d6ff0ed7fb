#pragma once

#include <bit>
#include <cstdint>

#include "kernels/host_device.h"

namespace shardplan {

/// The upper half of a float32: its sign, exponent and 7 bits of its significand.
enum class BFloat16 : std::uint16_t {};

SHARDPLAN_HOST_DEVICE inline float widened(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN.
SHARDPLAN_HOST_DEVICE inline BFloat16 rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return BFloat16{static_cast<std::uint16_t>((bits >> 16) | 0x40)};  // a quiet one
  const std::uint32_t bias = 0x7fff + ((bits >> 16) & 1);
  return BFloat16{static_cast<std::uint16_t>((bits + bias) >> 16)};
}

}  // namespace shardplan
