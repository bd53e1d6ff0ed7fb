#pragma once

#include <cstddef>
#include <span>

#include "plans/units.h"

namespace shardplan {

/// Fills memory with a pattern that no kernel writes, in words that begin at multiples of their
/// size in the address space.
void fill_pattern(std::span<std::byte> memory);
/// Bytes in words, or parts of words at the ends, that differ from the pattern.
Bytes count_changed(std::span<const std::byte> memory);

}  // namespace shardplan
