#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"

namespace shardplan {

/// Fills fresh memory, to see later what was written: a signalling NaN as float32 and no token
/// number, so no kernel writes it.
constexpr std::uint32_t kPattern = 0x7fb1d5e5;

/// The pattern's byte at an address; words begin at multiples of their size.
SHARDPLAN_HOST_DEVICE inline std::byte pattern_byte(std::uintptr_t address) {
  return static_cast<std::byte>(kPattern >> (address % sizeof(kPattern) * 8));
}

/// A word, or part of one: the bytes of [at, end) up to the next multiple of a word's size.
SHARDPLAN_HOST_DEVICE inline std::uintptr_t pattern_word_end(std::uintptr_t at,
                                                             std::uintptr_t end) {
  const std::uintptr_t next = at - at % sizeof(kPattern) + sizeof(kPattern);
  return next < end ? next : end;
}

}  // namespace shardplan
