#include "runtime/training_state.h"

#include <algorithm>

#include "plans/error.h"

namespace shardplan {
namespace {

/// Suffixes of what an optimizer kernel writes after the parameter, in order.
std::vector<std::string> states_of(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  if (compute && compute->kernel == Kernel::Adam) return {".exp_avg", ".exp_avg_sq"};
  if (compute && compute->kernel == Kernel::Sgd && instruction.writes.size() > 1)
    return {".momentum_buffer"};
  return {};
}

int unit_of(const Plan& plan, BufferId parameter) {
  const auto unit = std::ranges::find(plan.units, parameter, &Unit::parameter);
  check(unit != plan.units.end(), "an optimizer updates the parameter of a unit");
  return static_cast<int>(unit - plan.units.begin());
}

}  // namespace

std::vector<StatePart> training_state(const Plan& plan) {
  std::vector<StatePart> parts;
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const BufferId buffer = plan.units[u].parameter;
    if (buffer < 0) continue;
    const View whole{buffer, 0, plan.buffers[buffer].elems};
    parts.push_back({"", static_cast<int>(u), whole, whole});
  }
  for (const Instruction& instruction : plan.instructions) {
    const std::vector<std::string> suffixes = states_of(instruction);
    for (std::size_t i = 0; i < suffixes.size(); ++i)
      parts.push_back({suffixes[i], unit_of(plan, instruction.writes[0].buffer),
                       instruction.writes[i + 1], instruction.writes[0]});
  }
  return parts;
}

std::vector<Piece> pieces_of(const Plan& plan, const StatePart& part, std::int64_t rank) {
  return pieces_of(plan, plan.units[part.unit], rank, part.parameters);
}

std::string name_of(const Plan& plan, const StatePart& part, const Piece& piece) {
  return plan.units[part.unit].parameters[piece.parameter].name + part.suffix;
}

}  // namespace shardplan
