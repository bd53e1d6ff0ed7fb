#pragma once

#include <filesystem>
#include <string>

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Holds the memory of PyTorch's engines against recorded figures: what is allocated after every
/// phase, and the peaks. `filter`: only cases whose ids hold it. Returns the exit status.
int memory(const std::filesystem::path& file, const std::string& filter, Scorecard::Form form);

}  // namespace shardplan::oracle
