#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

/// What the instructions of a unit take in one phase of a step: collectives, and all others. A side
/// that does not know has no value.
struct SidePair {
  std::optional<Seconds> predicted;
  std::optional<Seconds> measured;  // of collectives with waiting for other ranks
};
struct UnitInPhase {
  std::string phase;
  std::string unit;  // empty: of no unit
  SidePair compute;
  SidePair communication;
  Bytes bytes = 0;  // that the operands of all of them span
};

/// In the plan's order. `predicted` has a timeline, `measured` the times of instructions. Throws
/// InputError when the measurement names an instruction that the plan does not have.
std::vector<UnitInPhase> side_by_side(const Plan& plan, const Report& predicted,
                                      const Report& measured);

std::string side_by_side_text(const std::vector<UnitInPhase>& rows);
/// schema shardplan/report/1.
std::string side_by_side_json(const std::vector<UnitInPhase>& rows);

}  // namespace shardplan
