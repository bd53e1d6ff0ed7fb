#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"
#include "tools/largest_fit.h"

namespace shardplan {

/// One row of a comparison.
struct ComparedStrategy {
  Strategy strategy = Strategy::FullShard;
  Plan plan;
  Report report;
  std::optional<Largest> largest;  // in blocks of the job's architecture
  std::int64_t largest_parameters = 0;

  bool fits() const { return report.fits.value_or(false); }
  Bytes device_bytes() const;
  Seconds step_s() const { return report.time ? report.time->step_s : 0; }
};

/// Bytes of the parameters, gradients and optimizer state that a rank holds from step to step.
Bytes model_state_bytes(const Plan& plan);

/// The job under each strategy. `tokens` of the whole training give time and cost in all. Calls
/// `on_row` before each row.
std::vector<ComparedStrategy> compare_strategies(const Job& job,
                                                 const std::vector<Strategy>& strategies,
                                                 std::optional<double> tokens,
                                                 const Hardware& hardware,
                                                 const std::function<void(Strategy)>& on_row);

/// One sentence that names a strategy and the reason for it.
std::string advice(const std::vector<ComparedStrategy>& rows, const Hardware& hardware);

}  // namespace shardplan
