#include "planner/cost/collective.h"

#include <algorithm>

namespace shardplan {
namespace {

/// Rate of the slowest link that a ring through the group uses.
double ring_bytes_per_s(const GroupPlacement& placement, const NetworkSpec& network,
                        const CostConstants& costs) {
  const double inside = network.intra_node_bytes_per_s;
  const double between =
      network.inter_node_bytes_per_s / static_cast<double>(placement.nic_sharers);
  if (placement.nodes == 1) return inside * costs.link_efficiency;
  if (placement.nodes == placement.ranks) return between * costs.link_efficiency;
  return std::min(inside, between) * costs.link_efficiency;
}

/// Latency of one pass around the ring: its steps between nodes and its steps inside them.
Seconds pass_latency(const GroupPlacement& placement, const NetworkSpec& network) {
  return static_cast<double>(placement.nodes - 1) * network.inter_node_latency_s +
         static_cast<double>(placement.ranks - placement.nodes) * network.intra_node_latency_s;
}

Seconds pass_time(Bytes full, const GroupPlacement& placement, const NetworkSpec& network,
                  const CostConstants& costs) {
  const auto traffic = static_cast<double>(ring_all_gather_traffic(full, placement.ranks));
  return pass_latency(placement, network) + traffic / ring_bytes_per_s(placement, network, costs);
}

}  // namespace

Bytes ring_all_gather_traffic(Bytes full, std::int64_t group) { return full - full / group; }

Bytes ring_all_reduce_traffic(Bytes full, std::int64_t group) {
  return 2 * ring_all_gather_traffic(full, group);
}

GroupPlacement placement_of(const Mesh& mesh, Group group, std::int64_t gpus_per_node) {
  const std::int64_t ranks = mesh.size(group);
  const std::int64_t stride = group == Group::Replicate ? mesh.shard : 1;
  const std::int64_t nodes = std::min(ranks, (ranks - 1) * stride / gpus_per_node + 1);
  return {ranks, nodes, nodes == 1 ? 1 : std::min(stride, gpus_per_node)};
}

Seconds ring_time(Bytes full, const GroupPlacement& placement, const NetworkSpec& network,
                  const CostConstants& costs) {
  if (placement.ranks == 1) return 0;
  return costs.collective_latency_s + pass_time(full, placement, network, costs);
}

Seconds ring_all_reduce_time(Bytes full, const GroupPlacement& placement,
                             const NetworkSpec& network, const CostConstants& costs) {
  if (placement.ranks == 1) return 0;
  return costs.collective_latency_s + 2 * pass_time(full, placement, network, costs);
}

Seconds broadcast_time(Bytes full, const GroupPlacement& placement, const NetworkSpec& network,
                       const CostConstants& costs) {
  if (placement.ranks == 1) return 0;
  return costs.collective_latency_s + pass_latency(placement, network) +
         static_cast<double>(full) / ring_bytes_per_s(placement, network, costs);
}

}  // namespace shardplan
