#pragma once

#include <cstdint>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// Elements [first, first + elems) of parameter `parameter` of a unit, found `at` elements after
/// the begin of a range of the flat parameter.
struct Piece {
  std::int32_t parameter = 0;
  std::int64_t first = 0;
  std::int64_t at = 0;
  std::int64_t elems = 0;
};

/// The pieces of parameters inside [begin, begin + elems) of the unit's flat parameter, in order.
/// What no piece covers is padding.
std::vector<Piece> pieces_of(const Unit& unit, std::int64_t begin, std::int64_t elems);

/// True when every rank holds the whole flat parameter.
inline bool is_replicated(const Unit& unit) { return unit.shard_elems == unit.padded_elems; }

/// Where the part that `rank` holds begins in the unit's flat parameter, in elements.
std::int64_t shard_begin(const Plan& plan, const Unit& unit, std::int64_t rank);

/// The ranks that together hold one copy of the unit: rank 0, or the first shard group.
std::int64_t holders_of_one_copy(const Plan& plan, const Unit& unit);

}  // namespace shardplan
