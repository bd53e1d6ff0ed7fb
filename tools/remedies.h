#pragma once

#include <string>
#include <vector>

#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/plan.h"

namespace shardplan {

/// Bytes of one device that the plan needs, in all.
Bytes device_bytes(const Plan& plan, const Hardware& hardware);

/// One change to a job and what its plan then needs of each device.
struct Remedy {
  std::string change;  // "--sharding FULL_SHARD", "a cluster of 2 x 8 GPUs"
  Bytes device_bytes = 0;
  bool fits = false;
};

/// "--seq 2048 needs 70.00 GiB and fits".
std::string text_of(const Remedy& remedy);

/// Single changes that shrink the plan of a job that does not fit, each planned for real, the best
/// first: those that fit in the order in which a user would rather give something up, then the
/// others by what they need.
std::vector<Remedy> remedies(const Job& job, const Hardware& hardware);

}  // namespace shardplan
