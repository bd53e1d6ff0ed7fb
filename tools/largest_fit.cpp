#include "tools/largest_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "planner/model.h"
#include "planner/planner.h"
#include "plans/job_reader.h"
#include "plans/names.h"
#include "tools/remedies.h"

namespace shardplan {
namespace {

constexpr std::array kMaximizable{EnumName{Maximize::MicroBatch, "micro_batch"},
                                  EnumName{Maximize::SequenceLength, "sequence_length"},
                                  EnumName{Maximize::Layers, "layers"}};

constexpr int kBisectEvery = 4;  // trials

/// A number that was tried.
struct Trial {
  std::int64_t number = 0;
  Bytes device_bytes = 0;
};

/// Where the line through two trials reaches the limit, within (fits, too_large).
std::int64_t guess(const Trial& a, const Trial& b, Bytes limit, const Trial& fits,
                   std::int64_t too_large) {
  const double slope = static_cast<double>(b.device_bytes - a.device_bytes) /
                       static_cast<double>(b.number - a.number);
  const double number =
      static_cast<double>(a.number) + static_cast<double>(limit - a.device_bytes) / slope;
  const double middle = static_cast<double>(fits.number + too_large) / 2;
  const double inside = std::isfinite(number) && slope > 0 ? number : middle;
  const double least = static_cast<double>(fits.number) + 1;
  const double most = std::max(least, static_cast<double>(too_large) - 1);
  return static_cast<std::int64_t>(std::clamp(inside, least, most));
}

/// Numbers of it that make sense, in its steps.
std::int64_t most_steps(const Job& job, const ModelGraph& model, Maximize what) {
  const TrainingJob& training = job.training;
  switch (what) {
    case Maximize::MicroBatch: return kMostTokens / training.sequence_length;
    case Maximize::SequenceLength: {
      const std::int64_t tokens = kMostTokens / training.micro_batch;
      return std::min(tokens, model.most_positions().value_or(tokens)) / kSequenceStep;
    }
    case Maximize::Layers: return kMostLayers;
  }
  return 0;
}

}  // namespace

std::optional<Largest> largest_fit(const std::function<Bytes(std::int64_t)>& needed, Bytes limit,
                                   std::int64_t most) {
  if (most < 1) return std::nullopt;
  const auto tried = [&](std::int64_t number) { return Trial{number, needed(number)}; };
  // 1 alone is no measure of what another adds: what is there once weighs on it.
  Trial last = tried(std::min<std::int64_t>(2, most));
  if (last.device_bytes > limit) {
    const Trial one = tried(1);
    if (one.device_bytes > limit) return std::nullopt;
    return Largest{1, one.device_bytes, last.device_bytes};
  }
  Trial fits = last;
  Trial too_large{most + 1, 0};
  std::int64_t next = std::min<std::int64_t>(4, most);
  for (int trial = 1; fits.number + 1 < too_large.number; ++trial) {
    const Trial now = tried(next);
    (now.device_bytes > limit ? too_large : fits) = now;
    // Now and then the middle, for what does not grow in a line.
    next = trial % kBisectEvery == 0 ? std::midpoint(fits.number, too_large.number)
                                     : guess(last, now, limit, fits, too_large.number);
    last = now;
  }
  Largest largest{fits.number, fits.device_bytes, std::nullopt};
  if (too_large.number <= most) largest.next_device_bytes = too_large.device_bytes;
  return largest;
}

std::string_view to_string(Maximize what) { return name_of(kMaximizable, what); }

Maximize maximize_from(std::string_view name) {
  return value_of(kMaximizable, name, "value of --maximize");
}

std::int64_t smallest(Maximize what) {
  return what == Maximize::SequenceLength ? kSequenceStep : 1;
}

Enlarged enlarged(const Job& job, Maximize what, std::int64_t number) {
  Enlarged larger{job, std::nullopt};
  switch (what) {
    case Maximize::MicroBatch: larger.job.training.micro_batch = number; break;
    case Maximize::SequenceLength: larger.job.training.sequence_length = number; break;
    case Maximize::Layers: larger.layers = static_cast<int>(number); break;
  }
  return larger;
}

std::optional<Largest> largest_that_fits(const Job& job, Maximize what, const Hardware& hardware) {
  const std::int64_t step = smallest(what);
  const ModelGraph model = located(job.places, [&] { return build_model(job.model); });
  const auto needed = [&](std::int64_t steps) {
    const Enlarged larger = enlarged(job, what, steps * step);
    return device_bytes(larger.layers ? make_plan(larger.job, build_model(job.model, larger.layers))
                                      : make_plan(larger.job, model),
                        hardware);
  };
  std::optional<Largest> largest =
      largest_fit(needed, job.cluster.gpu.memory_bytes, most_steps(job, model, what));
  if (largest) largest->number *= step;
  return largest;
}

}  // namespace shardplan
