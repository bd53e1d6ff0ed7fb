#include "tools/break_even.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "planner/planner.h"
#include "simulator/simulate.h"

namespace shardplan {
namespace {

constexpr double kLeastTried = 1e8;  // bytes/s of a link
constexpr double kMostTried = 1e13;
constexpr double kPrecision = 1.02;  // factor
constexpr std::int64_t kMostBatch = 64;

class Pair {
 public:
  Pair(const Job& job, Strategy sharding, Strategy over, const Hardware& hardware)
      : hardware_(hardware), sharded_(planned(job, sharding)), other_(planned(job, over)) {}

  /// With so many bytes/s on the link.
  bool bearable_at(bool between_nodes, double rate) {
    for (Plan* plan : {&sharded_, &other_}) {
      NetworkSpec& network = plan->job.cluster.network;
      (between_nodes ? network.inter_node_bytes_per_s : network.intra_node_bytes_per_s) = rate;
    }
    return bearable();
  }
  bool bearable() const { return step_of(sharded_) <= kBearable * step_of(other_); }

 private:
  static Plan planned(Job job, Strategy sharding) {
    set_sharding(job, sharding);
    return make_plan(job);
  }
  Seconds step_of(const Plan& plan) const {
    const auto time = simulate_time(plan, hardware_.costs(plan.profile));
    return time ? time->step_s : std::numeric_limits<double>::infinity();
  }

  const Hardware& hardware_;
  Plan sharded_;
  Plan other_;
};

std::optional<double> least_rate(Pair& pair, bool between_nodes) {
  if (!pair.bearable_at(between_nodes, kMostTried)) return std::nullopt;
  double slow = kLeastTried;
  double fast = kMostTried;
  while (fast / slow > kPrecision) {
    const double middle = std::sqrt(slow * fast);
    (pair.bearable_at(between_nodes, middle) ? fast : slow) = middle;
  }
  return fast;
}

std::string rate_text(const BreakEven& found) {
  const auto gigabytes = [](double rate) { return fmt::format("{:.3g} GB/s", rate / 1e9); };
  const std::string where = found.between_nodes ? "a node between nodes" : "a GPU inside the node";
  if (!found.bytes_per_s)
    return fmt::format("with no rate of the links (here {} {})", gigabytes(found.here), where);
  if (*found.bytes_per_s <= kLeastTried * kPrecision) return "at any rate of the links";
  return fmt::format("from {} {} on (here {})", gigabytes(*found.bytes_per_s), where,
                     gigabytes(found.here));
}

}  // namespace

std::optional<BreakEven> break_even(const Job& job, Strategy sharding, Strategy over,
                                    const Hardware& hardware) {
  if (job.world_size() == 1) return std::nullopt;
  BreakEven found{.sharding = sharding, .over = over, .between_nodes = job.cluster.nodes > 1};
  const NetworkSpec& network = job.cluster.network;
  found.here =
      found.between_nodes ? network.inter_node_bytes_per_s : network.intra_node_bytes_per_s;
  Pair pair(job, sharding, over, hardware);
  found.bytes_per_s = least_rate(pair, found.between_nodes);
  Job larger = job;
  for (std::int64_t batch = 1; batch <= kMostBatch && !found.micro_batch; batch *= 2) {
    if (batch > kMostTokens / job.training.sequence_length) break;
    larger.training.micro_batch = batch;
    if (Pair(larger, sharding, over, hardware).bearable()) found.micro_batch = batch;
  }
  return found;
}

std::string text_of(const BreakEven& found) {
  return fmt::format(
      "{} takes at most {:.0f} % longer than {} {}, and {}.", to_string(found.sharding),
      100 * (kBearable - 1), to_string(found.over), rate_text(found),
      found.micro_batch ? fmt::format("here from micro-batch {} on", *found.micro_batch)
                        : fmt::format("here with no micro-batch up to {}", kMostBatch));
}

}  // namespace shardplan
