#include "runtime/unit_layout.h"

#include <algorithm>

namespace shardplan {
namespace {

/// Adds the pieces inside whole elements [begin, end), which lie `at` elements into the view.
void add_pieces(const Unit& unit, std::int64_t begin, std::int64_t end, std::int64_t at,
                std::vector<Piece>& pieces) {
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    const UnitParameter& parameter = unit.parameters[p];
    const std::int64_t from = std::max(begin, parameter.at);
    const std::int64_t to = std::min(end, parameter.at + parameter.elems);
    if (from < to)
      pieces.push_back(
          {static_cast<std::int32_t>(p), from - parameter.at, at + from - begin, to - from});
  }
}

}  // namespace

std::vector<Piece> pieces_of(const Plan& plan, const Unit& unit, std::int64_t rank,
                             const View& view) {
  const std::int64_t shards = unit.shards();
  const std::int64_t index = shards > 1 ? rank % plan.mesh.shard : 0;
  std::vector<Piece> pieces;
  for (const UnitSlice& slice : unit.slices) {
    const std::int64_t part = slice.elems / shards;
    const std::int64_t place = slice.at / shards;  // of the part, in the shard
    const std::int64_t begin = std::max(view.at, place);
    const std::int64_t end = std::min(view.at + view.elems, place + part);
    if (begin >= end) continue;
    const std::int64_t whole = slice.at + index * part + (begin - place);
    add_pieces(unit, whole, whole + end - begin, begin - view.at, pieces);
  }
  return pieces;
}

std::int64_t holders_of_one_copy(const Unit& unit) { return unit.shards(); }

}  // namespace shardplan
