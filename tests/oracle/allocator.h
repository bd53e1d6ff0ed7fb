#pragma once

#include <filesystem>

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Replays the requests of a file of the form of allocator/allocator_cases.json against our model
/// of the caching allocator: every figure after every step must be equal. Throws InputError for
/// another file. Returns the exit status.
int allocator(const std::filesystem::path& file, Scorecard::Form form);

}  // namespace shardplan::oracle
