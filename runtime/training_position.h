#pragma once

#include <cstdint>

namespace shardplan {

/// How far training has come.
struct TrainingPosition {
  int steps = 0;               // that are done
  std::int64_t sequences = 0;  // that all ranks together have read
};

}  // namespace shardplan
