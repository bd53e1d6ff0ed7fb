#pragma once

#include <string>
#include <vector>

#include "plans/plan.h"
#include "runtime/device_kind.h"

namespace shardplan {

class ProcessWorld;

/// One collective, as a plan has it, done once. Bandwidths are those of nccl-tests (PERFORMANCE.md
/// there): the algorithm's is the whole size over the time, the bus's what every link must carry
/// for it, which is comparable with the link's own.
struct CollectiveTime {
  std::string kind;
  Group group = Group::World;
  std::int64_t ranks = 1;  // of the group
  Bytes bytes = 0;         // the whole: gathered, or contributed by each rank
  Seconds seconds = 0;
  double algorithm_bytes_per_s = 0;
  double bus_bytes_per_s = 0;
};

struct DryRunOptions {
  const DeviceKind& device = cpu_devices();
  Seconds timeout_s = 60;
};

/// Does the largest collective of every kind and group of a plan that can be executed, without any
/// training, with ranks as threads of this process. Throws as execute() does.
std::vector<CollectiveTime> time_collectives(const Plan& plan, const DryRunOptions& options);
/// The same as one rank of many processes, with the times of this one.
std::vector<CollectiveTime> time_collectives(const Plan& plan, const DryRunOptions& options,
                                             ProcessWorld& world);

}  // namespace shardplan
