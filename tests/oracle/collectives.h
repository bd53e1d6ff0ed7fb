#pragma once

#include <filesystem>
#include <string>

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Holds the collectives of PyTorch's engines against recorded lists: kind, order, bytes, dtype,
/// group, phase and module, at wrapping and in each of the first steps. `filter`: only cases whose
/// ids hold it. Returns the exit status.
int collectives(const std::filesystem::path& file, const std::string& filter, Scorecard::Form form);

}  // namespace shardplan::oracle
