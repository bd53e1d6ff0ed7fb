#pragma once

#include <functional>
#include <memory>

#include "plans/plan.h"
#include "runtime/comm/process_communicator.h"

namespace shardplan {

/// Connects this process with the others of its job and does its part of it. When the job fails,
/// one process throws why, and the others return the exit status that says the same. `listener`:
/// rank 0's, when something has made it already.
int run_process(const ProcessPlace& place, Socket listener, Seconds timeout_s,
                const std::function<int(ProcessWorld&)>& part);

/// For what processes settle before they train. Throws InputError when the launcher has started
/// another number of them than the plan has ranks.
std::unique_ptr<Communicator> communicator_of_all(ProcessWorld& world, const Plan& plan);

/// Throws SystemError when processes are of other versions or run other plans.
void expect_same_everywhere(Communicator& all, const Plan& plan);

}  // namespace shardplan
