#pragma once

#include <cstdint>

#include "plans/units.h"

namespace shardplan {

/// What a long training loses besides its steps.
struct Reliability {
  /// Mean time between failures that one GPU causes: 419 interruptions in 54 days on 16,384 GPUs
  /// ("The Llama 3 Herd of Models", 2024, section 3.3.4). 0: none fails.
  Seconds gpu_mtbf_s = 50'700.0 * kHour;
  Seconds checkpoint_every_s = 0;  // training between two checkpoints; 0: the best, after Daly
  Seconds checkpoint_s = 30;       // that training stands still for one; assumed
  Seconds restart_s = 600;         // from a failure until training goes on; assumed
  double jitter = 0;  // standard deviation of a rank's step, as a share of it: the slowest decides
  std::uint64_t seed = 0;
};

struct Goodput {
  Seconds checkpoint_every_s = 0;
  double straggling = 0;  // share by which the slowest rank lengthens a step
  double failures = 0;    // in the mean
  Seconds mean_s = 0;     // in all
  Seconds least_s = 0;    // all but one in twenty trainings take at least so long
  Seconds most_s = 0;     // and at most
  double share = 0;       // of the time that is steps which count, without stragglers
};

/// How long a training of `steps_s` seconds of steps takes on `gpus`, by a few hundred trainings
/// with failures drawn from `seed` (exponential times between them). What was trained since the
/// last checkpoint is lost. Throws InputError when failures come faster than checkpoints.
Goodput goodput(Seconds steps_s, std::int64_t gpus, const Reliability& reliability);

}  // namespace shardplan
