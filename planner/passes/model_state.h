#pragma once

#include <string>
#include <vector>

#include "planner/passes/emitter.h"
#include "plans/plan.h"

namespace shardplan {

/// What lives through the whole program: parameters and the optimizer's state of what is trained.
class ModelState {
 public:
  /// Makes the buffers and sets Unit::parameter.
  ModelState(Emitter& emitter, Plan& plan);

  /// Reads the weights.
  void load() const;
  /// Zeroes the state.
  void init() const;
  /// Writes the weights.
  void save() const;

  /// The optimizer's state of a unit, in the order of its kernel's operands.
  const std::vector<BufferId>& of_unit(std::size_t unit) const { return states_[unit]; }

 private:
  Emitter& emitter_;
  std::vector<std::vector<BufferId>> states_;  // by unit
};

}  // namespace shardplan
