#include "runtime/optimizer_state.h"

#include <algorithm>

#include "runtime/training_state.h"

namespace shardplan {

std::map<std::string, std::vector<float>> collect_optimizer_state(
    const Plan& plan,
    const std::function<std::span<const float>(std::int64_t rank, const View& view)>& values_of) {
  std::map<std::string, std::vector<float>> states;
  for (const StatePart& part : training_state(plan)) {
    if (part.suffix.empty()) continue;
    const Unit& unit = plan.units[part.unit];
    for (std::int64_t rank = 0; rank < holders_of_one_copy(unit); ++rank) {
      const auto values = values_of(rank, part.values);
      for (const Piece& piece : pieces_of(plan, part, rank)) {
        auto& whole = states[name_of(plan, part, piece)];
        whole.resize(unit.parameters[piece.parameter].elems);
        std::ranges::copy(values.subspan(piece.at, piece.elems), whole.begin() + piece.first);
      }
    }
  }
  return states;
}

}  // namespace shardplan
