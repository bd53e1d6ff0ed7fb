#include "tools/remedies.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/planner.h"
#include "plans/error.h"
#include "simulator/memory.h"

namespace shardplan {
namespace {

struct Change {
  std::string name;
  Job job;
};

/// From what costs the user least to what costs most.
std::vector<Change> changes_of(const Job& job) {
  std::vector<Change> changes;
  const auto add = [&](std::string name, auto apply) {
    changes.push_back({std::move(name), job});
    apply(changes.back().job);
  };
  if (job.strategy.sharding != Strategy::FullShard && job.world_size() > 1)
    add("--sharding FULL_SHARD",
        [](Job& changed) { changed.strategy.sharding = Strategy::FullShard; });
  if (const std::int64_t half = job.training.micro_batch / 2; half > 0)
    add(fmt::format("--micro-batch {}", half),
        [&](Job& changed) { changed.training.micro_batch = half; });
  if (const std::int64_t half = job.training.sequence_length / 2; half > 0)
    add(fmt::format("--seq {}", half),
        [&](Job& changed) { changed.training.sequence_length = half; });
  if (job.strategy.sharding == Strategy::FullShard &&
      2 * job.cluster.nodes <= kLargestWorld / job.cluster.gpus_per_node)
    add(fmt::format("--nodes {}", 2 * job.cluster.nodes),
        [](Job& changed) { changed.cluster.nodes *= 2; });
  return changes;
}

}  // namespace

Bytes device_bytes(const Plan& plan, const Hardware& hardware) {
  return rank_memory(plan, hardware.costs(plan.profile)).peak_device_bytes.value_or(0);
}

std::vector<Remedy> remedies(const Job& job, const Hardware& hardware) {
  std::vector<Remedy> found;
  for (const Change& change : changes_of(job)) {
    const Bytes needed = device_bytes(make_plan(change.job), hardware);
    found.push_back({change.name, needed, needed <= job.cluster.gpu.memory_bytes});
  }
  std::ranges::stable_sort(found, [](const Remedy& a, const Remedy& b) {
    if (a.fits || b.fits) return a.fits && !b.fits;
    return a.device_bytes < b.device_bytes;
  });
  return found;
}

}  // namespace shardplan
