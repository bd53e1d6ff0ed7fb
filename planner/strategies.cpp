#include "planner/strategies.h"

#include <algorithm>
#include <array>

#include "plans/error.h"

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
    PlannedStrategy{Strategy::Zero3, Mesh::Sharded, "1/N, small ones full", "1/N", "1/N",
                    "O(model/N)"},
};

}  // namespace

const PlannedStrategy& planned(Strategy strategy) {
  const auto* found = std::ranges::find(kPlanned, strategy, &PlannedStrategy::strategy);
  check(found != kPlanned.end(), "every strategy can be planned");
  return *found;
}

}  // namespace shardplan
