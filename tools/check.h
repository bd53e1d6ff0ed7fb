#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plans/report.h"

namespace shardplan {

/// Which deviations fail.
enum class Side { Both, Over, Under };

struct Tolerances {
  double share = 0.03;               // of the prediction
  std::optional<double> time_share;  // of the predicted step time; empty: time is not compared
  bool exact = false;                // allocated memory must agree to the byte
  Side side = Side::Both;
  std::string against = "prediction";  // what the measurement is held against
  std::vector<std::string> metrics;  // compare these only, or groups such as "at_peak"; empty: all
};

/// One metric that both sides have, of one rank or (empty `ranks`) of the job.
struct Finding {
  std::string metric;   // "peak_allocated_bytes", "at_peak.activations", "step_s"
  std::string against;  // "prediction" or "baseline"
  std::string ranks;
  double predicted = 0;  // bytes, or seconds for "step_s"
  double measured = 0;
  double allowed = 0;  // largest difference that passes
  double excess = 0;   // of the difference over what is allowed, on the side that counts

  bool passed() const { return excess <= 0; }
  double difference() const { return measured - predicted; }
  bool is_time() const { return metric == "step_s"; }
};

struct CheckResult {
  std::vector<Finding> findings;
  /// What the prediction has alone: metrics, metrics of single ranks, ranks.
  std::vector<std::string> not_measured;

  bool passed() const;
};

/// Names of all metrics that a check knows.
std::vector<std::string> metric_names();

/// Holds a measurement against a prediction. A metric passes within max(share x predicted, floor);
/// floors are 2 MiB of allocated and 64 MiB of device memory. Each measured entry is held against
/// all entries of the prediction that speak of its ranks. Throws InputError when the worlds differ,
/// when a rank is measured twice or not predicted, or when a metric asked for is not on both sides.
CheckResult hold_against(const Report& predicted, const Report& measured,
                         const Tolerances& tolerances);

/// The worst finding of each metric, in the order of the metrics.
std::vector<Finding> worst_by_metric(const std::vector<Finding>& findings);

}  // namespace shardplan
