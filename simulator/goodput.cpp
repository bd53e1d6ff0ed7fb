#include "simulator/goodput.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "plans/error.h"

namespace shardplan {
namespace {

constexpr int kTrainings = 400;
constexpr double kTail = 0.05;
constexpr int kMostFailures = 1'000'000;  // of one training, before it counts as endless

/// Mean of the largest of n standard normal numbers, for large n after Gumbel.
double mean_of_largest(std::int64_t n) {
  if (n < 2) return 0;
  const double root = std::sqrt(2 * std::log(static_cast<double>(n)));
  const double log_log = std::log(root * root / 2) + std::log(4 * std::numbers::pi);
  return std::max(0.0, root - log_log / (2 * root) + std::numbers::egamma / root);
}

/// The best training between two checkpoints: sqrt(2 x checkpoint x time between failures) (Daly,
/// "A higher order estimate of the optimum checkpoint interval", 2006).
Seconds best_interval(const Reliability& reliability, Seconds between_failures) {
  const Seconds checkpoint = std::max(1.0, reliability.checkpoint_s);
  return std::max(checkpoint, std::sqrt(2 * checkpoint * between_failures) - checkpoint);
}

struct Training {
  Seconds seconds = 0;
  int failures = 0;
};

Training one_training(Seconds work, Seconds every, Seconds between_failures,
                      const Reliability& reliability, std::mt19937_64& random) {
  std::exponential_distribution<double> until_failure(1 / between_failures);
  const Seconds period = every + reliability.checkpoint_s;
  Training training;
  for (Seconds done = 0; training.failures < kMostFailures; ++training.failures) {
    const double periods = std::max(0.0, std::ceil((work - done) / every) - 1);
    const Seconds left = work - done + periods * reliability.checkpoint_s;
    const Seconds runs = until_failure(random);
    if (runs >= left) {
      training.seconds += left;
      return training;
    }
    done += std::floor(runs / period) * every;
    training.seconds += runs + reliability.restart_s;
  }
  throw InputError(
      fmt::format("a failure every {} leaves no time for checkpoints every {}: training never ends",
                  format_seconds(between_failures), format_seconds(every)));
}

}  // namespace

Goodput goodput(Seconds steps_s, std::int64_t gpus, const Reliability& reliability) {
  Goodput result;
  result.straggling = reliability.jitter * mean_of_largest(gpus);
  const Seconds work = steps_s * (1 + result.straggling);
  const bool fails = reliability.gpu_mtbf_s > 0;
  const Seconds between =
      fails ? reliability.gpu_mtbf_s / static_cast<double>(gpus) : 1e6 * (work + 1);
  result.checkpoint_every_s = reliability.checkpoint_every_s > 0
                                  ? reliability.checkpoint_every_s
                                  : std::min(work, best_interval(reliability, between));
  std::mt19937_64 random(reliability.seed);
  std::vector<Seconds> times;
  for (int t = 0; t < kTrainings; ++t) {
    const Training training =
        one_training(work, result.checkpoint_every_s, between, reliability, random);
    times.push_back(training.seconds);
    result.mean_s += training.seconds / kTrainings;
    result.failures += static_cast<double>(training.failures) / kTrainings;
  }
  std::ranges::sort(times);
  result.least_s = times[static_cast<std::size_t>(kTail * kTrainings)];
  result.most_s = times[static_cast<std::size_t>((1 - kTail) * kTrainings)];
  result.share = steps_s / result.mean_s;
  return result;
}

}  // namespace shardplan
