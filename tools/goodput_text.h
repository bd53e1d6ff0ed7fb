#pragma once

#include <optional>
#include <string>

#include "simulator/goodput.h"
#include "tools/terminal.h"

namespace shardplan {

/// A training on so many tokens, with what it loses to failures, checkpoints and stragglers.
struct LongTraining {
  double tokens = 0;
  Seconds steps_s = 0;  // of its steps alone
  Goodput result;
  std::optional<double> cost;  // USD, in the mean
};

/// A table of it.
std::string text_of(const LongTraining& training, const Palette& palette);

}  // namespace shardplan
