#pragma once

#include <filesystem>

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Predicts the time of every collective of `file` (columns of nccl-tests, as
/// tests/oracle/bandwidth/collectives.csv has them) and holds the median error of each table
/// against its bar. Tables whose GPU or network is not stated are skipped.
int bandwidth(const std::filesystem::path& file, Scorecard::Form form);

}  // namespace shardplan::oracle
