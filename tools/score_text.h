#pragma once

#include <string>
#include <vector>

#include "tools/score.h"

namespace shardplan {

/// Errors of some figures, and what these have in common.
struct NamedSummary {
  std::string name;
  ErrorSummary summary;
};
/// A line of each, under a header that says of what they are.
std::string errors_text(const std::string& of_what, const std::vector<NamedSummary>& summaries);

/// Every figure, or every one that is off by more than `least_error`: id, predicted, measured,
/// error, what was assumed.
std::string figures_text(const Score& score, double least_error);

/// Errors over all, over rows that state everything, and per family; then the reasons why rows are
/// left out, with how many there are of each.
std::string summary_text(const Score& score);

}  // namespace shardplan
