#pragma once

#include <string>

#include "tools/score.h"

namespace shardplan {

/// A picture of predicted against measured tokens/s, both axes logarithmic: a dot a row, a colour a
/// source, the diagonal and 20 % to both sides of it. Rows that are extrapolations are hollow.
std::string score_svg(const Score& score);

}  // namespace shardplan
