#pragma once

#include <filesystem>

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Counts the parameters of every `folder`/NAME/config.json that `folder`/params.csv lists, and
/// holds them against that table. Returns the exit status: 0, or 1 when a count differs.
/// Throws InputError when the table cannot be read.
int configs(const std::filesystem::path& folder, Scorecard::Form form);

}  // namespace shardplan::oracle
