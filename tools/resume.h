#pragma once

#include <string>

#include "plans/job.h"

namespace shardplan {

/// The checkpoint that --resume names: a path, whose files must be as they were written, or "auto":
/// the newest whole one of a job that runs so, empty when there is none at all. A damaged one that
/// is passed over is told on standard error. Throws InputError, also when it is of a later step
/// than the job's last.
std::string checkpoint_to_resume(const std::string& resume, const RunJob& run);

}  // namespace shardplan
