#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/model_graph.h"
#include "plans/plan.h"
#include "plans/report.h"
#include "tools/search_space.h"

namespace shardplan {

/// What a search makes least: dollars per token, seconds per token, or bytes of a device.
enum class Objective { Cost, Time, Memory };
/// "cost", "time", "memory".
std::string_view to_string(Objective objective);
/// Throws InputError with the nearest known name.
Objective objective_from(std::string_view name);

/// What the user will not go beyond. Budget and deadline are of a training on `tokens`.
struct SearchLimits {
  std::optional<double> tokens;
  std::optional<double> budget;  // USD
  std::optional<Seconds> deadline_s;
  std::optional<Bytes> memory;  // of a device, beside what it has
};

struct SearchQuestion {
  Objective objective = Objective::Time;
  SearchLimits limits;
};

/// What a job costs, as far as searches ask.
struct Outcome {
  Bytes device_bytes = 0;
  Seconds per_token_s = 0;               // of the whole cluster
  std::optional<double> per_token_cost;  // USD

  /// What the objective makes least; a cost that is not known is infinite.
  double value(Objective objective) const;
  /// Whether a device of the job holds it and no limit is exceeded, by more than `slack` of it.
  bool allowed(const Job& job, const SearchLimits& limits, double slack = 0) const;
};

/// Plans and simulates jobs of one model.
class Evaluator {
 public:
  /// `modes`: the ways of checkpointing that are asked for. Throws InputError.
  Evaluator(const Job& job, const std::vector<ActivationCheckpointing>& modes,
            const Hardware& hardware);

  Plan full_plan(const Job& job) const;
  /// By the full plan.
  Outcome outcome(const Job& job, const Plan& plan) const;
  /// By two plans of few blocks, as time and memory grow in a line with the blocks: a step that
  /// may come out a little too short, and what is allocated at the peak, which is less than a
  /// device needs.
  Outcome estimate(const Job& job) const;
  /// Seconds per token of one rank that its matrix products take at the least, whatever is gathered
  /// and reduced beside them.
  Seconds product_seconds(const Job& job) const;

 private:
  struct Figures {
    double bytes = 0;
    Seconds seconds = 0;
  };
  /// What `figures` gives for the full plan, by two of few blocks.
  Figures extrapolated(const Job& job, const std::function<Figures(const Plan&)>& figures) const;
  const CostConstants& costs(const Plan& plan) const { return hardware_.costs(plan.profile); }

  const Hardware& hardware_;
  ModelGraph model_;
  int layers_ = 0;                     // blocks of the model; 0: cannot be made with fewer
  std::map<int, ModelGraph> shorter_;  // by blocks
};

/// A candidate that was planned in full.
struct Confirmed {
  const Candidate* candidate = nullptr;
  Outcome outcome;
};

struct SearchResult {
  std::vector<Confirmed> best;  // in the order of the objective, one of those that differ in the
                                // micro-batch only; empty: no candidate is allowed
  std::size_t considered = 0;
  std::size_t too_large = 0;  // that do not fit, or cannot be planned
  std::size_t hopeless = 0;   // that by their matrix products alone, or by what smaller
                              // micro-batches need, are worse than these or beyond a limit
  std::size_t estimated = 0;  // that are by plans of few blocks
  std::size_t confirmed = 0;  // that were planned in full
};

/// Finds the candidates with the least value. What cannot be among them is left out by bounds: a
/// step takes as long as its matrix products, and memory grows with the micro-batch; then by
/// estimates; what is left is planned in full. Works on all cores; `on_progress(n)` after n
/// candidates, by any thread, one at a time.
SearchResult search(const Candidates& candidates, const SearchQuestion& question,
                    const Evaluator& evaluator,
                    const std::function<void(std::size_t)>& on_progress);

}  // namespace shardplan
