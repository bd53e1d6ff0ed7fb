#pragma once

#include <vector>

#include "plans/plan.h"
#include "runtime/device_kind.h"

namespace shardplan {

/// Throws InputError naming what of the plan can be planned but not executed.
void expect_executable(const Plan& plan, const DeviceKind& kind);

/// Throws SystemError when this machine has too few devices for so many ranks, or for CPU ranks too
/// little memory: a machine that runs out of it kills at random; better to say so before.
void expect_place(const Plan& plan, std::int64_t ranks, const DeviceKind& kind);

std::vector<Stream> streams_with_collectives(const Plan& plan);

}  // namespace shardplan
