#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plans/hardware.h"
#include "plans/job.h"

namespace shardplan {

/// From where on a sharding's step takes at most kBearable of that of another.
struct BreakEven {
  Strategy sharding = Strategy::FullShard;
  Strategy over = Strategy::Ddp;
  bool between_nodes = false;               // which link; else the one inside a node
  double here = 0;                          // its rate in the job, bytes/s as NetworkSpec has it
  std::optional<double> bytes_per_s;        // the least rate that suffices; none: no rate does
  std::optional<std::int64_t> micro_batch;  // the least power of two that suffices; none: none of
                                            // those tried does
};
constexpr double kBearable = 1.05;

/// For the job under both shardings; nothing where one rank has no links. Memory is not looked at:
/// the other sharding need not fit.
std::optional<BreakEven> break_even(const Job& job, Strategy sharding, Strategy over,
                                    const Hardware& hardware);

/// A sentence that says it.
std::string text_of(const BreakEven& found);

}  // namespace shardplan
