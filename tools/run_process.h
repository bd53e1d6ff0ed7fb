#pragma once

#include <functional>

#include "plans/plan.h"
#include "runtime/comm/process_communicator.h"

namespace shardplan {

/// Connects this process with the others of its job and does its part of it. When the job fails,
/// one process throws why, and the others return the exit status that says the same. `listener`:
/// rank 0's, when something has made it already.
int run_process(const ProcessPlace& place, Socket listener, Seconds timeout_s,
                const std::function<int(ProcessWorld&)>& part);

/// Throws InputError when the launcher has started another number of processes than the plan has
/// ranks, and SystemError when they are of other versions or run other plans.
void expect_same_everywhere(ProcessWorld& world, const Plan& plan);

}  // namespace shardplan
