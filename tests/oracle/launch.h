#pragma once

#include <string>

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Imports every launch file of a folder that its expected.json names, and compares each field
/// there. Returns the exit status.
int launch(const std::string& folder, Scorecard::Form form);

}  // namespace shardplan::oracle
