#include "tools/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>
#include <variant>

#include "planner/model.h"
#include "planner/passes/recomputation.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "plans/names.h"
#include "simulator/events.h"
#include "simulator/memory.h"
#include "simulator/simulate.h"
#include "tools/parallel.h"
#include "tools/remedies.h"

namespace shardplan {
namespace {

constexpr std::array kObjectives{EnumName{Objective::Cost, "cost"},
                                 EnumName{Objective::Time, "time"},
                                 EnumName{Objective::Memory, "memory"}};

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// By how much an estimated step may be longer than that of the full plan, and the memory larger
/// that it finds allocated than what the device needs: 3.5 and 0.5 % on 2280 candidates of
/// Llama-3-8B with both kinds of engines.
constexpr double kTimeSlack = 0.05;
constexpr double kMemorySlack = 0.01;
/// The winner and runners-up.
constexpr std::size_t kShown = 5;

/// Numbers of blocks that estimates plan: what a step begins and ends with, then one or two periods
/// of checkpointing.
struct FewBlocks {
  int less = 3;
  int more = 4;
};
FewBlocks few_blocks(const ActivationCheckpointing& mode) {
  if (mode.kind != ActivationCheckpointing::Kind::Every || mode.every == 1) return {};
  return {.less = static_cast<int>(round_up(3, mode.every)),
          .more = static_cast<int>(round_up(3, mode.every)) + mode.every};
}

std::optional<double> cost_of(const Job& job, Seconds seconds) {
  if (!job.cluster.price_per_gpu_hour) return std::nullopt;
  return *job.cluster.price_per_gpu_hour * job.world_size() * seconds / kHour;
}

Bytes memory_limit(const Job& job, const SearchLimits& limits) {
  const Bytes device = job.cluster.gpu.memory_bytes;
  return std::min(device, limits.memory.value_or(device));
}

Outcome outcome_of(const Job& job, Bytes device_bytes, Seconds step_s) {
  const Seconds per_token = step_s / static_cast<double>(tokens_per_step(job));
  return {device_bytes, per_token, cost_of(job, per_token)};
}

/// One search, shared by its threads.
class Search {
 public:
  Search(const Candidates& candidates, const SearchQuestion& question, const Evaluator& evaluator,
         const std::function<void(std::size_t)>& on_progress)
      : candidates_(candidates.all),
        question_(question),
        evaluator_(evaluator),
        on_progress_(on_progress),
        least_of_work_(candidates.works),
        least_of_group_(candidates.groups),
        too_large_from_(candidates.groups, std::numeric_limits<std::int64_t>::max()) {
    result_.considered = candidates_.size();
  }

  SearchResult run() {
    find_bounds();
    sort_by_bound();
    for_each_of(order_, [this](const Candidate& candidate) {
      try_candidate(candidate);
      const std::lock_guard lock(mutex_);
      on_progress_(++done_);
    });
    for (const auto& [value, one] : best_)
      result_.best.push_back(one);
    return std::move(result_);
  }

 private:
  using Many = std::vector<const Candidate*>;

  template <typename Work>
  static void for_each_of(const Many& candidates, Work work) {
    on_all_cores(candidates.size(), [&](std::size_t i) { work(*candidates[i]); });
  }

  /// The first candidate of each kind, a kind being what `of` gives.
  Many first_of_each(std::size_t kinds, std::size_t Candidate::*of) const {
    std::vector<const Candidate*> first(kinds, nullptr);
    for (const Candidate& candidate : candidates_)
      if (first[candidate.*of] == nullptr) first[candidate.*of] = &candidate;
    std::erase(first, nullptr);
    return first;
  }

  /// What candidates take at the least: seconds by their products, memory by the smallest
  /// micro-batch of their group.
  void find_bounds() {
    for_each_of(
        first_of_each(least_of_work_.size(), &Candidate::work), [this](const Candidate& candidate) {
          const auto seconds = planned([&] { return evaluator_.product_seconds(candidate.job); });
          least_of_work_[candidate.work] = seconds.value_or(kInfinite);
        });
    if (question_.objective != Objective::Memory) return;
    for_each_of(first_of_each(least_of_group_.size(), &Candidate::group),
                [this](const Candidate& candidate) {
                  const auto least = planned([&] { return evaluator_.estimate(candidate.job); });
                  if (least) least_of_group_[candidate.group] = least->device_bytes;
                });
  }

  Outcome bound(const Candidate& candidate) const {
    const Seconds per_token = least_of_work_[candidate.work] / candidate.job.world_size();
    return {least_of_group_[candidate.group], per_token, cost_of(candidate.job, per_token)};
  }

  /// The best first, as far as bounds tell, so that the others are seen to be worse.
  void sort_by_bound() {
    for (const Candidate& candidate : candidates_)
      order_.push_back(&candidate);
    std::ranges::stable_sort(order_, {}, [&](const Candidate* candidate) {
      return bound(*candidate).value(question_.objective);
    });
  }

  double slack() const {
    return question_.objective == Objective::Memory ? kMemorySlack : kTimeSlack;
  }

  void try_candidate(const Candidate& candidate) {
    if (candidate.job.training.micro_batch >= too_large_from(candidate))
      return count(&SearchResult::too_large);
    if (!can_win(candidate, bound(candidate), kMemorySlack)) return count(&SearchResult::hopeless);
    const auto estimated = planned([&] { return evaluator_.estimate(candidate.job); });
    if (!estimated) return count(&SearchResult::too_large);
    if (static_cast<double>(estimated->device_bytes) >
        static_cast<double>(memory_limit(candidate.job, question_.limits)) * (1 + kMemorySlack)) {
      note_too_large(candidate);
      return count(&SearchResult::too_large);
    }
    if (!can_win(candidate, *estimated, slack())) return count(&SearchResult::estimated);
    confirm(candidate);
    count(&SearchResult::confirmed);
  }

  /// By the full plan.
  void confirm(const Candidate& candidate) {
    const Outcome outcome = evaluator_.outcome(candidate.job, evaluator_.full_plan(candidate.job));
    if (!outcome.allowed(candidate.job, question_.limits)) return;
    const double value = outcome.value(question_.objective);
    const std::lock_guard lock(mutex_);
    const auto same = std::ranges::find_if(
        best_, [&](const auto& other) { return other.second.candidate->group == candidate.group; });
    if (same != best_.end() && same->first <= value) return;
    if (same != best_.end()) best_.erase(same);
    best_.emplace(value, Confirmed{&candidate, outcome});
    if (best_.size() > kShown) best_.erase(std::prev(best_.end()));
  }

  /// Whether a candidate that comes to that at the least, but for the slack, can be among the best.
  bool can_win(const Candidate& candidate, const Outcome& least, double slack) {
    if (!least.allowed(candidate.job, question_.limits, slack)) return false;
    const std::lock_guard lock(mutex_);
    return best_.size() < kShown ||
           least.value(question_.objective) <= std::prev(best_.end())->first * (1 + slack);
  }

  std::int64_t too_large_from(const Candidate& candidate) {
    const std::lock_guard lock(mutex_);
    return too_large_from_[candidate.group];
  }
  void note_too_large(const Candidate& candidate) {
    const std::lock_guard lock(mutex_);
    std::int64_t& from = too_large_from_[candidate.group];
    from = std::min(from, candidate.job.training.micro_batch);
  }
  void count(std::size_t SearchResult::*what) {
    const std::lock_guard lock(mutex_);
    ++(result_.*what);
  }

  /// What `work` gives; nothing where the planner refuses the job.
  template <typename Work>
  static auto planned(Work work) -> std::optional<decltype(work())> {
    try {
      return work();
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  const std::vector<Candidate>& candidates_;
  const SearchQuestion& question_;
  const Evaluator& evaluator_;
  const std::function<void(std::size_t)>& on_progress_;
  std::vector<Seconds> least_of_work_;  // per token of one rank, by kind of work
  std::vector<Bytes> least_of_group_;   // of a device; 0: not asked
  Many order_;
  std::mutex mutex_;                          // of what follows
  std::vector<std::int64_t> too_large_from_;  // by group: a micro-batch known not to fit
  std::multimap<double, Confirmed> best_;     // by value, one of a group
  std::size_t done_ = 0;
  SearchResult result_;
};

}  // namespace

std::string_view to_string(Objective objective) { return name_of(kObjectives, objective); }
Objective objective_from(std::string_view name) { return value_of(kObjectives, name, "objective"); }

double Outcome::value(Objective objective) const {
  switch (objective) {
    case Objective::Cost: return per_token_cost.value_or(kInfinite);
    case Objective::Time: return per_token_s;
    case Objective::Memory: return static_cast<double>(device_bytes);
  }
  return kInfinite;
}

bool Outcome::allowed(const Job& job, const SearchLimits& limits, double slack) const {
  const auto within = [&](double amount, double limit) { return amount <= limit * (1 + slack); };
  const auto memory = static_cast<double>(memory_limit(job, limits));
  if (!within(static_cast<double>(device_bytes), memory)) return false;
  const double tokens = limits.tokens.value_or(0);
  if (limits.deadline_s && !within(per_token_s * tokens, *limits.deadline_s)) return false;
  return !limits.budget || within(per_token_cost.value_or(kInfinite) * tokens, *limits.budget);
}

Evaluator::Evaluator(const Job& job, const std::vector<ActivationCheckpointing>& modes,
                     const Hardware& hardware)
    : hardware_(hardware), model_(located(job.places, [&] { return build_model(job.model); })) {
  if (!job.model.graph.empty()) return;  // a graph has the blocks that it has
  const auto blocks = static_cast<int>(block_modules(model_).size());
  for (const ActivationCheckpointing& mode : modes) {
    const FewBlocks few = few_blocks(mode);
    if (few.more >= blocks) return;
    for (const int number : {few.less, few.more})
      if (!shorter_.contains(number)) shorter_.emplace(number, build_model(job.model, number));
  }
  layers_ = blocks;
}

Plan Evaluator::full_plan(const Job& job) const { return make_plan(job, model_); }

Outcome Evaluator::outcome(const Job& job, const Plan& plan) const {
  const auto time = simulate_time(plan, costs(plan));
  return outcome_of(job, device_bytes(plan, hardware_), time ? time->step_s : kInfinite);
}

Evaluator::Figures Evaluator::extrapolated(
    const Job& job, const std::function<Figures(const Plan&)>& figures) const {
  if (layers_ == 0) return figures(full_plan(job));
  const FewBlocks few = few_blocks(job.training.activation_checkpointing);
  const Figures less = figures(make_plan(job, shorter_.at(few.less)));
  const Figures more = figures(make_plan(job, shorter_.at(few.more)));
  const double further = static_cast<double>(layers_ - few.more) / (few.more - few.less);
  return {more.bytes + (more.bytes - less.bytes) * further,
          more.seconds + (more.seconds - less.seconds) * further};
}

Outcome Evaluator::estimate(const Job& job) const {
  const Figures figures = extrapolated(job, [&](const Plan& plan) {
    Bytes allocated = 0;
    for (const RankMemory& memory : rank_memories(plan, costs(plan)))
      allocated = std::max(allocated, memory.peak_allocated_bytes.value_or(0));
    const auto time = simulate_time(plan, costs(plan));
    return Figures{static_cast<double>(allocated), time ? time->step_s : kInfinite};
  });
  return outcome_of(job, std::llround(figures.bytes), figures.seconds);
}

Seconds Evaluator::product_seconds(const Job& job) const {
  Job one = job;
  one.training.gradient_accumulation.steps = 1;
  const Figures figures = extrapolated(one, [&](const Plan& plan) {
    const std::vector<InstructionCost> all = instruction_costs(plan, costs(plan));
    const IssueOrder order = issue_order(plan, 2);
    double sum = 0;
    for (const InstructionId id : order.step(order.step_ends.size() - 1)) {
      const auto* compute = std::get_if<Compute>(&plan.instructions[id].operation);
      if (compute != nullptr && is_matrix_product(compute->kernel)) sum += all[id].seconds;
    }
    return Figures{0, sum};
  });
  return figures.seconds /
         static_cast<double>(one.training.micro_batch * one.training.sequence_length);
}

SearchResult search(const Candidates& candidates, const SearchQuestion& question,
                    const Evaluator& evaluator,
                    const std::function<void(std::size_t)>& on_progress) {
  return Search(candidates, question, evaluator, on_progress).run();
}

}  // namespace shardplan
