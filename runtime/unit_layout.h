#pragma once

#include <cstdint>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// Elements [first, first + elems) of parameter `parameter` of a unit, found `at` elements after
/// the begin of a view.
struct Piece {
  std::int32_t parameter = 0;
  std::int64_t first = 0;
  std::int64_t at = 0;
  std::int64_t elems = 0;
};

/// The pieces of parameters that lie in `view`, which is a part of what `rank` holds of the unit,
/// in order. What no piece covers is padding.
std::vector<Piece> pieces_of(const Plan& plan, const Unit& unit, std::int64_t rank,
                             const View& view);

/// The ranks that together hold one copy of the unit: rank 0, or the first shard group.
std::int64_t holders_of_one_copy(const Unit& unit);

}  // namespace shardplan
