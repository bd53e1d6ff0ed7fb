#pragma once

#include <string>
#include <vector>

#include "plans/plan.h"
#include "runtime/unit_layout.h"

namespace shardplan {

/// A part of what training carries from step to step: parameters of a unit, or what the optimizer
/// keeps for them.
struct StatePart {
  std::string suffix;  // of tensor names: "" for the parameters, else ".exp_avg", ".exp_avg_sq" or
                       // ".momentum_buffer"
  int unit = -1;
  View values;      // float32; what a rank holds
  View parameters;  // those of the unit's parameter buffer that the values belong to
};
std::vector<StatePart> training_state(const Plan& plan);

/// The pieces of parameters that `rank` holds values of.
std::vector<Piece> pieces_of(const Plan& plan, const StatePart& part, std::int64_t rank);

/// "model.norm.weight.exp_avg"
std::string name_of(const Plan& plan, const StatePart& part, const Piece& piece);

}  // namespace shardplan
