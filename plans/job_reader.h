#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/setting.h"

namespace shardplan {

/// Parses a job file; `source` names it in errors ("file:line:column: ..."). `overrides` are
/// applied on top. Throws InputError.
Job parse_job(std::string_view yaml, const std::string& source, const Hardware& hardware,
              std::span<const Setting> overrides);

/// Reads the file at `path`, or starts from the defaults when it is empty.
Job read_job(const std::string& path, const Hardware& hardware, std::span<const Setting> overrides);

/// The fully resolved job as JSON text, with the contract's names, and back. Throws InputError.
std::string job_to_json(const Job& job);
Job job_from_json(std::string_view text, const std::string& source);

}  // namespace shardplan
