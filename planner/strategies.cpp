#include "planner/strategies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace shardplan {
namespace {

using Mesh = PlannedStrategy::Mesh;

// SHARD_GRAD_OP and _HYBRID_SHARD_ZERO2, as in PyTorch: the parameters stay whole from forward to
// the end of backward.
constexpr std::array kPlanned{
    PlannedStrategy{Strategy::Ddp, Mesh::Replicated, "full", "full", "full", "O(model)"},
    PlannedStrategy{Strategy::NoShard, Mesh::Replicated, "full", "full", "full", "O(model)"},
    PlannedStrategy{Strategy::Zero1, Mesh::Sharded, "full", "full", "1/N", "O(model)"},
    PlannedStrategy{Strategy::Zero2, Mesh::Sharded, "full", "1/N", "1/N", "O(model)"},
    PlannedStrategy{Strategy::HybridShardZero2, Mesh::Hybrid, "1/G, full in forward and backward",
                    "1/G", "1/G", "O(model/G), O(model) in the step"},
    PlannedStrategy{Strategy::HybridShard, Mesh::Hybrid, "1/G", "1/G", "1/G", "O(model/G)"},
    PlannedStrategy{Strategy::ShardGradOp, Mesh::Sharded, "1/N, full in forward and backward",
                    "1/N", "1/N", "O(model/N), O(model) in the step"},
    PlannedStrategy{Strategy::FullShard, Mesh::Sharded, "1/N", "1/N", "1/N", "O(model/N)"},
    PlannedStrategy{Strategy::Zero3, Mesh::Sharded, "1/N", "1/N", "1/N", "O(model/N)"},
};

}  // namespace

std::span<const PlannedStrategy> planned_strategies() { return kPlanned; }

const PlannedStrategy* find_planned(Strategy strategy) {
  const auto found = std::ranges::find(kPlanned, strategy, &PlannedStrategy::strategy);
  return found == kPlanned.end() ? nullptr : &*found;
}

std::string names_of_planned_strategies() {
  std::vector<std::string_view> names;
  for (const PlannedStrategy& planned : kPlanned)
    names.push_back(to_string(planned.strategy));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace shardplan
