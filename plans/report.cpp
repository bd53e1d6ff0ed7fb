#include "plans/report.h"

#include <algorithm>
#include <cmath>

namespace shardplan {

std::optional<Seconds> steady_step_seconds(const std::vector<StepReport>& steps) {
  std::vector<Seconds> seconds;
  for (const StepReport& step : steps)
    if (std::isfinite(step.seconds)) seconds.push_back(step.seconds);
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  if (seconds.empty()) return std::nullopt;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

}  // namespace shardplan
