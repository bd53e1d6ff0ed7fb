#pragma once

#include <optional>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

struct SimulateOptions {
  bool timeline = false;
};

/// Predicts one steady step of the plan on the cluster of its job: memory by category and phase,
/// times by discrete events over the plan's streams, exposed communication, cost. `costs` are those
/// of the plan's profile. The plan's hash, which costs more than all else, is left empty; so is the
/// timeline unless asked for. Throws InputError when the cluster lacks a rate.
Report simulate(const Plan& plan, const CostConstants& costs, const SimulateOptions& options = {});

/// The times of that step alone; nothing when it takes none.
std::optional<TimeReport> simulate_time(const Plan& plan, const CostConstants& costs);

}  // namespace shardplan
