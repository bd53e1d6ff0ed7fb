#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/comparison.h"
#include "tools/terminal.h"

namespace shardplan {

/// The first line of a comparison: what it predicts and assumes, and how to change that.
std::string assumptions_text(const Plan& plan);

/// Copies of the model and memory, communication, time and cost: a table each, a row per strategy.
std::string comparison_text(const std::vector<ComparedStrategy>& rows, std::optional<double> tokens,
                            const Palette& palette);

}  // namespace shardplan
