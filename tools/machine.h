#pragma once

#include <functional>
#include <string>

#include "plans/hardware.h"
#include "plans/units.h"

namespace shardplan {

/// What each of so many ranks of this machine sustains while all of them train.
struct MachineRates {
  int ranks = 1;
  Bytes memory_bytes = 0;         // that is available, a rank's part
  double matmul_flops_per_s = 0;  // of float32 products
  double memory_bytes_per_s = 0;  // of element-wise kernels
  double link_bytes_per_s = 0;    // of collectives over the ring's links; one rank: of memory
  Seconds hop_s = 0;              // of a collective for each other rank
};

/// Trains a small model, sharded, on `ranks` CPU ranks of this machine for some seconds, and does
/// its collectives alone. `on_step` is called after every step with its number and that of all.
/// Throws as execute() does.
MachineRates measure_machine(int ranks, const Hardware& hardware,
                             const std::function<void(int, int)>& on_step);

/// The `cluster` section of a job on such ranks, in YAML, which --cluster takes.
std::string cluster_yaml(const MachineRates& rates);

}  // namespace shardplan
