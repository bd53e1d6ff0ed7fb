#pragma once

#include <string>

#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

/// The report's timeline in the Trace Event Format, which Perfetto and chrome://tracing open: a row
/// for each stream, and the device memory that is alive, in issue order, as a counter.
std::string trace_json(const Plan& plan, const Report& report);

}  // namespace shardplan
