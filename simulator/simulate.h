#pragma once

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

/// Predicts one steady step of the plan on the cluster of its job: memory by category and phase,
/// times by discrete events over the plan's streams, exposed communication, cost. Live bound and
/// timeline are left empty unless asked for.
struct SimulateOptions {
  bool timeline = false;
};
Report simulate(const Plan& plan, const CostConstants& costs, const SimulateOptions& options = {});

}  // namespace shardplan
