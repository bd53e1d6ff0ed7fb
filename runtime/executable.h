#pragma once

#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// Throws InputError naming what of the plan can be planned but not executed.
void expect_executable(const Plan& plan);

/// Throws SystemError when so many ranks do not fit this machine: one that runs out of memory kills
/// at random; better to say so before.
void expect_memory(const Plan& plan, std::int64_t ranks);

std::vector<Stream> streams_with_collectives(const Plan& plan);

}  // namespace shardplan
