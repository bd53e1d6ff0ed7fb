#pragma once

#include <string>

#include "tools/score.h"

namespace shardplan {

/// Every figure, or every one that is off by more than `least_error`: id, predicted, measured,
/// error, what was assumed.
std::string figures_text(const Score& score, double least_error);

/// Errors over all, over rows that state everything, and per family; then the reasons why rows are
/// left out, with how many there are of each.
std::string summary_text(const Score& score);

}  // namespace shardplan
