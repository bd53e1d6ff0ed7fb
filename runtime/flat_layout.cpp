#include "runtime/flat_layout.h"

#include <algorithm>

namespace shardplan {

std::vector<Piece> pieces_of(const Unit& unit, std::int64_t begin, std::int64_t elems) {
  std::vector<Piece> pieces;
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    const UnitParameter& parameter = unit.parameters[p];
    const std::int64_t from = std::max(begin, parameter.at);
    const std::int64_t to = std::min(begin + elems, parameter.at + parameter.elems);
    if (from < to)
      pieces.push_back(
          {static_cast<std::int32_t>(p), from - parameter.at, from - begin, to - from});
  }
  return pieces;
}

std::int64_t shard_begin(const Plan& plan, const Unit& unit, std::int64_t rank) {
  return is_replicated(unit) ? 0 : rank % plan.mesh.shard * unit.shard_elems;
}

std::int64_t holders_of_one_copy(const Plan& plan, const Unit& unit) {
  return is_replicated(unit) ? 1 : plan.mesh.shard;
}

}  // namespace shardplan
