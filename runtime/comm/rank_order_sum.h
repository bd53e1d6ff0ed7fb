#pragma once

#include <cstddef>
#include <span>

#include "runtime/comm/contribution.h"

namespace shardplan {

/// out = post_scale * sum of pre_scale * the bytes of `parts` from `first_byte` on, in the order of
/// `parts`, so that every communicator gives the same bits. float32 and bfloat16 are summed in
/// float32, float64 in float64. `out` may be the same bytes of a part.
void sum_in_rank_order(std::span<const Contribution> parts, std::size_t first_byte,
                       std::span<std::byte> out);

/// The part of an all-reduced buffer of `bytes` that `member` of `members` sums.
struct Slice {
  std::size_t at;
  std::size_t bytes;
};
Slice slice_of(std::size_t bytes, std::size_t members, std::size_t member);

}  // namespace shardplan
