#include "runtime/optimizer_state.h"

#include <algorithm>
#include <string_view>

#include "plans/error.h"
#include "runtime/unit_layout.h"

namespace shardplan {
namespace {

/// Names of what an optimizer kernel writes after the parameter, in order.
std::vector<std::string_view> states_of(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  if (compute && compute->kernel == Kernel::Adam) return {"exp_avg", "exp_avg_sq"};
  if (compute && compute->kernel == Kernel::Sgd && instruction.writes.size() > 1)
    return {"momentum_buffer"};
  return {};
}

const Unit& unit_of(const Plan& plan, BufferId parameter) {
  const auto unit = std::ranges::find(plan.units, parameter, &Unit::parameter);
  check(unit != plan.units.end(), "an optimizer updates the parameter of a unit");
  return *unit;
}

}  // namespace

std::map<std::string, std::vector<float>> collect_optimizer_state(
    const Plan& plan,
    const std::function<std::span<const float>(std::int64_t rank, const View& view)>& values_of) {
  std::map<std::string, std::vector<float>> states;
  for (const Instruction& instruction : plan.instructions) {
    const std::vector<std::string_view> names = states_of(instruction);
    if (names.empty()) continue;
    const View& parameters = instruction.writes[0];
    const Unit& unit = unit_of(plan, parameters.buffer);
    for (std::int64_t rank = 0; rank < holders_of_one_copy(unit); ++rank) {
      for (const Piece& piece : pieces_of(plan, unit, rank, parameters)) {
        const UnitParameter& parameter = unit.parameters[piece.parameter];
        for (std::size_t i = 0; i < names.size(); ++i) {
          auto& whole = states[parameter.name + "." + std::string(names[i])];
          whole.resize(parameter.elems);
          const auto part = values_of(rank, instruction.writes[i + 1]);
          std::ranges::copy(part.subspan(piece.at, piece.elems), whole.begin() + piece.first);
        }
      }
    }
  }
  return states;
}

}  // namespace shardplan
