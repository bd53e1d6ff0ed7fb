#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/units.h"

namespace shardplan {

/// The largest number of which something fits.
struct Largest {
  std::int64_t number = 0;
  Bytes device_bytes = 0;                  // that it needs
  std::optional<Bytes> next_device_bytes;  // that the next larger number needs; none: not tried
};

/// Searches 1 .. `most` for the largest number of which `needed(number)`, which grows with it, is
/// at most `limit`; nothing when not even 1 fits. Every candidate is tried for real; what grows
/// nearly in a line takes a few.
std::optional<Largest> largest_fit(const std::function<Bytes(std::int64_t)>& needed, Bytes limit,
                                   std::int64_t most);

/// What `fit` can enlarge.
enum class Maximize { MicroBatch, SequenceLength, Layers };
/// "micro_batch", ...
std::string_view to_string(Maximize what);
/// Throws InputError with the nearest known name.
Maximize maximize_from(std::string_view name);

/// The job with another micro-batch, sequence length or number of blocks.
struct Enlarged {
  Job job;
  std::optional<int> layers;  // other than the config's
};
Enlarged enlarged(const Job& job, Maximize what, std::int64_t number);

/// Sequence lengths are tried in steps of so many tokens.
constexpr std::int64_t kSequenceStep = 128;
/// The smallest number of it that is tried.
std::int64_t smallest(Maximize what);
/// Blocks beyond which the search stops, so that small models on large GPUs take no minutes.
constexpr int kMostLayers = 256;

/// The largest number of it with which the job's plan fits on its GPUs.
std::optional<Largest> largest_that_fits(const Job& job, Maximize what, const Hardware& hardware);

}  // namespace shardplan
