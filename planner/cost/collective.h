#pragma once

#include <cstdint>
#include <optional>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/units.h"

namespace shardplan {

/// Bytes each rank sends for a ring all-gather whose full result is `full` bytes, or for a ring
/// reduce-scatter of `full` bytes: all but its own shard. (Patarasuk and Yuan, "Bandwidth optimal
/// all-reduce algorithms for clusters of workstations", 2009.)
Bytes ring_all_gather_traffic(Bytes full, std::int64_t group);

/// Bytes each rank sends for a ring all-reduce of `full` bytes: a reduce-scatter and an all-gather.
Bytes ring_all_reduce_traffic(Bytes full, std::int64_t group);

/// How the ranks of a group lie on the nodes of a cluster.
struct GroupPlacement {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;        // that the group spreads over
  std::int64_t nic_sharers = 1;  // groups of the same axis that use a node's network cards at once
};

/// Rank r of the mesh is (r / shard, r % shard), and node r / gpus_per_node holds it. Of groups
/// that lie differently, the first counts.
GroupPlacement placement_of(const Mesh& mesh, Group group, std::int64_t gpus_per_node);

/// What a group does together, on `full` bytes: the gathered result, what is reduced before it is
/// scattered, or what each rank holds. The first two take the same time.
enum class CollectiveKind { AllGather, ReduceScatter, AllReduce, Broadcast };

/// Time of a collective: the start, then that of the fastest protocol of `costs`, as NCCL chooses
/// (its model: src/graph/tuning.cc). Every protocol takes its start and a hop's latency for each
/// step between ranks, and the traffic at its share of the slowest link's rate:
///  - ring: the traffic of each rank passes all links. Rings of one group cross each node's border
///    once and share all of its network cards.
///  - tree (all-reduce only): all bytes go up to the parent and down again, one half of them along
///    each of two trees (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
///    broadcast, reduction and scan", 2009).
///  - NVLS (all-reduce inside a node): the switch reads all bytes of each of n ranks, and each
///    sends its sum of 1 / n of them to be copied to all: 1 + 1 / n of the bytes leave a GPU.
///  - NVLSTree: that inside nodes, a tree between them.
/// With `algorithm` only its protocols count. Throws InputError when none is left.
Seconds collective_time(CollectiveKind kind, Bytes full, const GroupPlacement& placement,
                        const NetworkSpec& network, const CostConstants& costs,
                        std::optional<CollectiveAlgorithm> algorithm = {});

}  // namespace shardplan
