#pragma once

#include <string>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// How far a predicted time may be off, and what makes it so.
struct TimeRange {
  double share = 0;                    // from time / (1 + share) to time x (1 + share)
  std::vector<std::string> defaulted;  // fields of the job that decide and were not stated
  std::string why;                     // what makes it a guess; empty: nothing
};

/// As errors on published trainings came out (docs/accuracy.md): 10 % where everything that decides
/// about the speed is stated, 20 % where a field of it has its default. A factor of two for what no
/// figures tell: operands of 4 bits, adapters over PCIe, and CPU ranks.
TimeRange time_range(const Plan& plan);

}  // namespace shardplan
