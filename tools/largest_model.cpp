#include "tools/largest_model.h"

#include <algorithm>
#include <cmath>

#include "planner/model.h"
#include "planner/planner.h"
#include "tools/remedies.h"

namespace shardplan {
namespace {

/// A number of blocks and what its plan needs.
struct Candidate {
  int layers = 0;
  Bytes device_bytes = 0;
  std::int64_t parameters = 0;
};

Candidate candidate_of(const Job& job, const Hardware& hardware, int layers) {
  const Plan plan = make_plan(job, build_model(job.model, layers));
  return {layers, device_bytes(plan, hardware), plan.parameter_count};
}

/// Where the line through two candidates reaches the limit, within (fits, too_large).
int guess(const Candidate& a, const Candidate& b, Bytes limit, int fits, int too_large) {
  const double slope = static_cast<double>(b.device_bytes - a.device_bytes) / (b.layers - a.layers);
  const double layers = a.layers + static_cast<double>(limit - a.device_bytes) / slope;
  const double inside = std::isfinite(layers) && slope > 0 ? layers : (fits + too_large) / 2.0;
  return static_cast<int>(std::clamp(inside, fits + 1.0, too_large - 1.0));
}

}  // namespace

std::optional<LargestModel> largest_model(const Job& job, const Hardware& hardware) {
  const Bytes limit = job.cluster.gpu.memory_bytes;
  // One block alone is no measure of what another adds: first and last units are special.
  Candidate last = candidate_of(job, hardware, 2);
  Candidate best = last;
  if (last.device_bytes > limit) {
    best = candidate_of(job, hardware, 1);
    if (best.device_bytes > limit) return std::nullopt;
    return LargestModel{best.layers, best.parameters, false};
  }
  Candidate now = candidate_of(job, hardware, 4);
  int too_large = kMostLayers + 1;
  while (true) {
    if (now.device_bytes <= limit && now.layers > best.layers) best = now;
    if (now.device_bytes > limit) too_large = std::min(too_large, now.layers);
    if (best.layers + 1 >= too_large) break;
    const int next = guess(last, now, limit, best.layers, too_large);
    last = now;
    now = candidate_of(job, hardware, next);
  }
  return LargestModel{best.layers, best.parameters, best.layers == kMostLayers};
}

}  // namespace shardplan
