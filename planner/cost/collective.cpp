#include "planner/cost/collective.h"

#include <algorithm>
#include <cmath>

#include "plans/error.h"

namespace shardplan {
namespace {

/// A collective of one group under one protocol.
class ProtocolTime {
 public:
  ProtocolTime(CollectiveKind kind, const GroupPlacement& group, const NetworkSpec& network,
               const CollectiveProtocol& protocol)
      : kind_(kind),
        ranks_(static_cast<double>(group.ranks)),
        nodes_(static_cast<double>(group.nodes)),
        network_(network),
        protocol_(protocol),
        nic_sharers_(static_cast<double>(group.nic_sharers)) {}

  bool possible() const {
    switch (protocol_.algorithm) {
      case CollectiveAlgorithm::Ring: return true;
      case CollectiveAlgorithm::Tree: return all_reduce();
      case CollectiveAlgorithm::Nvls: return all_reduce() && nodes_ == 1 && switch_sums();
      case CollectiveAlgorithm::NvlsTree: return all_reduce() && nodes_ > 1 && switch_sums();
    }
    return false;
  }

  Seconds of(double full) const {
    return protocol_.base_s + latency() + full / (bytes_per_s() * protocol_.rate_share);
  }

 private:
  bool all_reduce() const { return kind_ == CollectiveKind::AllReduce; }
  bool switch_sums() const {
    return network_.nvls_efficiency > 0 && network_.intra_node_link == NodeLink::Direct &&
           ranks_ > nodes_;
  }
  double ranks_per_node() const { return ranks_ / nodes_; }

  Seconds inside_hop() const {
    return network_.intra_node_latency_s + (network_.intra_node_link == NodeLink::Direct
                                                ? protocol_.direct_hop_s
                                                : protocol_.pcie_hop_s);
  }
  Seconds network_hop() const { return network_.inter_node_latency_s + protocol_.network_hop_s; }

  /// All hops that the last byte waits for.
  Seconds latency() const {
    const double passes = all_reduce() ? 2 : 1;
    switch (protocol_.algorithm) {
      case CollectiveAlgorithm::Ring:
        return passes * ((nodes_ - 1) * network_hop() + (ranks_ - nodes_) * inside_hop());
      case CollectiveAlgorithm::Tree:
        return passes * (std::log2(nodes_) * network_hop() + (ranks_per_node() - 1) * inside_hop());
      case CollectiveAlgorithm::Nvls: return inside_hop();
      case CollectiveAlgorithm::NvlsTree:
        return passes * std::log2(nodes_) * network_hop() + inside_hop();
    }
    return 0;
  }

  /// Rate at which a rank sends inside its node.
  double inside_rate() const {
    const double rate = network_.intra_node_bytes_per_s * network_.intra_node_efficiency;
    if (network_.full_mesh_gpus <= 1) return rate;
    return rate * std::min(1.0, (ranks_per_node() - 1) / (network_.full_mesh_gpus - 1));
  }
  /// Rate at which the group's ranks on a node send to other nodes.
  double network_rate() const {
    return network_.inter_node_bytes_per_s * network_.inter_node_efficiency / nic_sharers_;
  }
  /// Rate of the slowest link that a ring uses.
  double ring_rate() const {
    if (nodes_ == 1) return inside_rate();
    if (nodes_ == ranks_) return network_rate();
    return std::min(inside_rate(), network_rate());
  }
  /// Bytes of the collective that two trees move per second between nodes. Of two nodes each sends
  /// every byte once; of more, the inner ones send half the bytes up and to two children, and the
  /// other half up as leaves.
  double tree_rate() const { return network_rate() / (nodes_ == 2 ? 1 : 2); }

  /// Bytes of the collective that are done per second.
  double bytes_per_s() const {
    switch (protocol_.algorithm) {
      case CollectiveAlgorithm::Ring:
        if (kind_ == CollectiveKind::Broadcast) return ring_rate();
        return ring_rate() * ranks_ / ((ranks_ - 1) * (all_reduce() ? 2 : 1));
      case CollectiveAlgorithm::Tree:
        if (nodes_ == 1) return inside_rate() / 2;
        if (ranks_ == nodes_) return tree_rate();
        return std::min(inside_rate() / 2, tree_rate());
      case CollectiveAlgorithm::Nvls: return switch_rate(ranks_);
      case CollectiveAlgorithm::NvlsTree:
        return std::min(switch_rate(ranks_per_node()), tree_rate());
    }
    return 0;
  }
  double switch_rate(double ranks) const {
    return inside_rate() * network_.nvls_efficiency * ranks / (ranks + 1);
  }

  CollectiveKind kind_;
  double ranks_;
  double nodes_;
  const NetworkSpec& network_;
  const CollectiveProtocol& protocol_;
  double nic_sharers_;
};

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

Seconds collective_time(CollectiveKind kind, Bytes full, const GroupPlacement& placement,
                        const NetworkSpec& network, const CostConstants& costs,
                        std::optional<CollectiveAlgorithm> algorithm) {
  if (placement.ranks == 1) return 0;
  std::optional<Seconds> fastest;
  for (const CollectiveProtocol& protocol : costs.collective_protocols) {
    if (algorithm && protocol.algorithm != *algorithm) continue;
    const ProtocolTime time(kind, placement, network, protocol);
    if (!time.possible()) continue;
    const Seconds seconds = time.of(static_cast<double>(full));
    if (!fastest || seconds < *fastest) fastest = seconds;
  }
  if (!fastest) throw InputError("cost_model.yaml: no protocol for this collective and network");
  return costs.collective_latency_s + *fastest;
}

}  // namespace shardplan
