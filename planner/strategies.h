#pragma once

#include <string_view>

#include "plans/job.h"

namespace shardplan {

/// A strategy that can be planned. N: the ranks of the world; G: those of a shard group.
struct PlannedStrategy {
  enum class Mesh { Replicated, Sharded, Hybrid };

  Strategy strategy;
  Mesh mesh;
  // What a rank holds of the model:
  std::string_view parameters;
  std::string_view gradients;
  std::string_view optimizer_state;
  std::string_view order;  // of its memory for these
};

const PlannedStrategy& planned(Strategy strategy);

}  // namespace shardplan
