#pragma once

#include <optional>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"
#include "tools/largest_fit.h"

namespace shardplan {

/// What fits under a strategy; plan and report are of the largest, or, where nothing fits, of the
/// smallest that was tried.
struct FittedStrategy {
  Strategy strategy = Strategy::FullShard;
  std::optional<Largest> largest;
  Plan plan;
  Report report;
};
/// The largest that fits of the job under a strategy, and what a step of that is like.
FittedStrategy fit_strategy(const Job& job, Strategy strategy, Maximize what,
                            const Hardware& hardware);

}  // namespace shardplan
