#pragma once

#include <string>

namespace shardplan {

/// The checkpoint that --resume names: a path, whose files must be as they were written, or "auto":
/// the newest whole one of a job that writes to `output`, empty when there is none at all. A
/// damaged one that is passed over is told on standard error. Throws InputError.
std::string checkpoint_to_resume(const std::string& resume, const std::string& output);

}  // namespace shardplan
