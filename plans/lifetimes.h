#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// Positions in an issue order at which a buffer is first and last touched; -1: never.
struct Lifetime {
  std::int32_t first = -1;
  std::int32_t last = -1;
};

/// Lifetime of every buffer over `order` (as from unroll()): from the first to the last instruction
/// that has it as an operand; resident buffers live from the first to the last position.
std::vector<Lifetime> lifetimes(const Plan& plan, std::span<const InstructionId> order);

/// Sum of the live device buffers at every position.
std::vector<Bytes> live_bytes(const Plan& plan, std::span<const Lifetime> lifetimes,
                              std::size_t order_size);

/// The largest sum of `live` (as from live_bytes()), and the first position that has it.
struct LivePeak {
  std::int32_t position = -1;  // -1: the order is empty
  Bytes bytes = 0;
};
LivePeak live_peak(std::span<const Bytes> live);

}  // namespace shardplan
