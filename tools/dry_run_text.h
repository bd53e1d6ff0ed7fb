#pragma once

#include <string>
#include <vector>

#include "runtime/dry_run.h"

namespace shardplan {

/// A line for each collective: size, time, bandwidths.
std::string dry_run_text(const std::vector<CollectiveTime>& times);

/// schema shardplan/dry_run/1.
std::string dry_run_json(const std::vector<CollectiveTime>& times);

}  // namespace shardplan
