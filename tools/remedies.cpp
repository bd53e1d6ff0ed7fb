#include "tools/remedies.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/planner.h"
#include "plans/error.h"
#include "simulator/memory.h"

namespace shardplan {
namespace {

constexpr int kMostTimesTheGpus = 16;

struct Change {
  std::string name;
  Job job;
};

/// Fills the node first; then it takes more nodes.
Change more_gpus(const Job& job, int factor) {
  Change change{"", job};
  ClusterJob& cluster = change.job.cluster;
  const bool one_node =
      cluster.nodes == 1 && factor * cluster.gpus_per_node <= cluster.gpu.max_gpus_per_node;
  (one_node ? cluster.gpus_per_node : cluster.nodes) *= factor;
  change.name = fmt::format("a cluster of {} x {} GPUs", cluster.nodes, cluster.gpus_per_node);
  return change;
}

/// From what costs the user least to what costs most.
std::vector<Change> changes_of(const Job& job) {
  std::vector<Change> changes;
  const auto add = [&](std::string name, auto apply) {
    changes.push_back({std::move(name), job});
    apply(changes.back().job);
  };
  const Strategy smallest =
      job.strategy.engine == Engine::DeepSpeed ? Strategy::Zero3 : Strategy::FullShard;
  if (job.strategy.sharding != smallest && job.world_size() > 1)
    add(fmt::format("--sharding {}", to_string(smallest)),
        [&](Job& changed) { set_sharding(changed, smallest); });
  if (const std::int64_t half = job.training.micro_batch / 2; half > 0)
    add(fmt::format("--micro-batch {}", half),
        [&](Job& changed) { changed.training.micro_batch = half; });
  if (const std::int64_t half = job.training.sequence_length / 2; half > 0)
    add(fmt::format("--seq {}", half),
        [&](Job& changed) { changed.training.sequence_length = half; });
  // Copies of the whole model do not shrink with more GPUs.
  if (job.strategy.sharding == smallest)
    for (int factor = 2; factor <= kMostTimesTheGpus; factor *= 2)
      if (std::int64_t{factor} * job.world_size() <= kLargestWorld)
        changes.push_back(more_gpus(job, factor));
  return changes;
}

}  // namespace

Bytes device_bytes(const Plan& plan, const Hardware& hardware) {
  Bytes most = 0;
  for (const RankMemory& memory : rank_memories(plan, hardware.costs(plan.profile)))
    most = std::max(most, memory.peak_device_bytes.value_or(0));
  return most;
}

std::string text_of(const Remedy& remedy) {
  return fmt::format("{} needs {}{}", remedy.change, format_bytes(remedy.device_bytes),
                     remedy.fits ? " and fits" : ", still too much");
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
