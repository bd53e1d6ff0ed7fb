#pragma once

#include <cstdint>

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

/// Time of a ring all-gather or reduce-scatter of `full` bytes: the start of a collective, a hop's
/// latency for each of its ranks - 1 steps, and the traffic over the slowest link of the ring.
/// Rings of one group cross each node's border once and share all of its network cards (as NCCL
/// lays them; src/graph/tuning.cc counts latency in the same way).
Seconds ring_time(Bytes full, const GroupPlacement& placement, const NetworkSpec& network,
                  const CostConstants& costs);

/// Time of a ring all-reduce: both passes, started once.
Seconds ring_all_reduce_time(Bytes full, const GroupPlacement& placement,
                             const NetworkSpec& network, const CostConstants& costs);

/// Time of a broadcast along a chain of ranks, pipelined: every link carries all bytes.
Seconds broadcast_time(Bytes full, const GroupPlacement& placement, const NetworkSpec& network,
                       const CostConstants& costs);

}  // namespace shardplan
