#pragma once

#include <string>
#include <string_view>

#include "plans/job.h"

namespace shardplan {

/// Throws FieldError: "DDP is not supported yet; supported: ...".
[[noreturn]] void fail_unsupported(const std::string& field, std::string_view value,
                                   std::string_view supported);

/// Refuses by name what a job may ask for and its engine, or no pass, plans yet. Throws FieldError.
void refuse_unplanned(const Job& job);

}  // namespace shardplan
