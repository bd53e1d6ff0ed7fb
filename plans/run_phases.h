#pragma once

#include <bitset>
#include <string_view>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// The others come once a run.
constexpr bool is_of_a_step(Phase phase) {
  return phase == Phase::Forward || phase == Phase::Backward || phase == Phase::Optimizer;
}

/// The times of a run that a report tells apart. FirstStep: all of it. Accumulate: the micro-steps
/// of a later step but the last. Forward, Backward, Optimizer: the rest of such a step.
enum class RunPhase { Load, Init, FirstStep, Forward, Backward, Optimizer, Accumulate, Save };
constexpr int kRunPhases = 8;
std::string_view to_string(RunPhase phase);

/// Where an instruction counts: one pass of a loop may stand for several, and the first step for
/// all where the plan does not treat it apart.
using RunPhases = std::bitset<kRunPhases>;

/// The phases of every position of unroll(plan, 1). What lies between the first batch and the loop
/// over the steps is the first step.
std::vector<RunPhases> run_phases(const Plan& plan);

}  // namespace shardplan
