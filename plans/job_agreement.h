#pragma once

#include <vector>

#include "plans/plan.h"
#include "plans/verify.h"

namespace shardplan {

/// Appends where a plan does something else than the job that it holds: another way of sharding,
/// micro-batch, number of micro-steps, clipping or optimizer.
void check_job(const Plan& plan, std::vector<Fault>& faults);

}  // namespace shardplan
