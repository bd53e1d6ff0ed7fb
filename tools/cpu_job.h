#pragma once

#include "plans/hardware.h"
#include "plans/job.h"

namespace shardplan {

/// The job as ranks on CPU cores of this machine execute it: the same ranks, with GPU and network
/// of the catalogue's cpu, and kernels for it.
Job on_cpu(const Job& job, const Hardware& hardware);

}  // namespace shardplan
