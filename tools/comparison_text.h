#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/comparison.h"
#include "tools/terminal.h"

namespace shardplan {

/// The first line of a comparison: what it predicts and assumes, and how to change that. `engines`:
/// of its rows.
std::string assumptions_text(const Plan& plan, const std::vector<Engine>& engines);

/// By row of a comparison, or of what fits.
template <typename Row>
std::vector<Engine> engines_of(const std::vector<Row>& rows) {
  std::vector<Engine> engines;
  for (const Row& row : rows)
    engines.push_back(row.plan.job.strategy.engine.value_or(Engine::Native));
  return engines;
}

/// Copies of the model and memory, communication, time and cost: a table each, a row per strategy.
std::string comparison_text(const std::vector<ComparedStrategy>& rows, std::optional<double> tokens,
                            const Palette& palette);

}  // namespace shardplan
