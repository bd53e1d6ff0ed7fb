#pragma once

#include <cstdint>
#include <optional>

#include "plans/hardware.h"
#include "plans/job.h"

namespace shardplan {

/// The job's model with another number of blocks.
struct LargestModel {
  int layers = 0;
  std::int64_t parameters = 0;
  bool more = false;  // kMostLayers fit: there may be larger ones
};

/// Blocks beyond which the search stops, so that small models on large GPUs take no minutes.
constexpr int kMostLayers = 256;

/// The most blocks of the job's architecture of which the plan fits on its GPUs; nothing when not
/// even one does. Every candidate is planned for real; memory grows by nearly the same with each
/// block, so that a few are enough.
std::optional<LargestModel> largest_model(const Job& job, const Hardware& hardware);

}  // namespace shardplan
