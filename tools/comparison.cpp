#include "tools/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "planner/model.h"
#include "plans/error.h"
#include "simulator/memory_replay.h"
#include "simulator/simulate.h"
#include "tools/documents.h"
#include "tools/prediction_text.h"
#include "tools/remedies.h"

namespace shardplan {
namespace {

constexpr double kAsFast = 1.01;  // steps that differ by less than 1 % count as equal

void add_totals(Report& report, double tokens) {
  if (!report.time || report.time->tokens_per_s <= 0) return;
  report.time->total_s = tokens / report.time->tokens_per_s;
  if (report.cost && report.cost->per_hour)
    report.cost->total = *report.cost->per_hour / kHour * *report.time->total_s;
}

std::string needs_text(const ComparedStrategy& row) {
  return fmt::format("{} of {}", format_bytes(row.device_bytes()),
                     format_bytes(row.report.limit_bytes.value_or(0)));
}

std::string none_fits(const std::vector<ComparedStrategy>& rows, const Hardware& hardware) {
  const auto& least = *std::ranges::min_element(rows, {}, &ComparedStrategy::device_bytes);
  std::string text = fmt::format("None: {} needs least and does not fit, {}",
                                 to_string(least.strategy), needs_text(least));
  const std::vector<Remedy> changes = remedies(least.plan.job, hardware);
  if (!changes.empty()) text += fmt::format("; what would help first: {}", text_of(changes[0]));
  return text + ".";
}

/// The fastest that fits; of equally fast ones, that with the least memory.
const ComparedStrategy& best_of(const std::vector<const ComparedStrategy*>& fitting) {
  const auto* best = *std::ranges::min_element(fitting, {}, &ComparedStrategy::step_s);
  const Seconds fast = best->step_s() * kAsFast;
  for (const ComparedStrategy* row : fitting)
    if (row->step_s() <= fast && row->device_bytes() < best->device_bytes()) best = row;
  return *best;
}

std::string speed_text(const ComparedStrategy& best,
                       const std::vector<const ComparedStrategy*>& fitting) {
  const ComparedStrategy* second = nullptr;
  for (const ComparedStrategy* row : fitting)
    if (row != &best && (second == nullptr || row->step_s() < second->step_s())) second = row;
  if (second == nullptr)
    return fmt::format("{} is the only one that fits", to_string(best.strategy));
  if (second->step_s() <= best.step_s() * kAsFast)
    return fmt::format("it is as fast as {}, {} a step, with less memory, {}",
                       to_string(second->strategy), format_seconds(best.step_s()),
                       format_bytes(best.device_bytes()));
  return fmt::format("it is the fastest, {} a step against {} of {}", format_seconds(best.step_s()),
                     format_seconds(second->step_s()), to_string(second->strategy));
}

}  // namespace

Bytes ComparedStrategy::device_bytes() const {
  return fullest(report).memory.peak_device_bytes.value_or(0);
}

Bytes model_state_bytes(const Plan& plan) {
  constexpr std::array kStates{Category::Parameters, Category::Gradients, Category::OptimizerState};
  Bytes most = 0;
  if (!has_allocator(plan.profile)) {
    for (const Buffer& buffer : plan.buffers)
      if (std::ranges::find(kStates, buffer.category) != kStates.end()) most += buffer.bytes();
    return most;
  }
  // Buffers that come and go: what is there at a time, on the rank that holds most.
  const std::vector<InstructionId> order = unroll(plan, 1);
  for (std::size_t rank_class = 0; rank_class < plan.classes.size(); ++rank_class) {
    MemoryReplay replay(plan, rank_class);
    for (const InstructionId id : order) {
      replay.issue(id);
      Bytes bytes = 0;
      for (const Category category : kStates)
        bytes += replay.by_category()[static_cast<std::size_t>(category)];
      most = std::max(most, bytes);
    }
  }
  return most;
}

std::vector<ComparedStrategy> compare_strategies(const Job& job,
                                                 const std::vector<Strategy>& strategies,
                                                 std::optional<double> tokens,
                                                 const Hardware& hardware,
                                                 const std::function<void(Strategy)>& on_row) {
  std::vector<ComparedStrategy> rows;
  for (const Strategy strategy : strategies) {
    on_row(strategy);
    ComparedStrategy& row = rows.emplace_back();
    Job variant = job;
    set_sharding(variant, strategy);
    row.strategy = strategy;
    row.plan = verified_plan(variant);
    row.report = simulate(row.plan, hardware.costs(row.plan.profile));
    if (variant.model.graph.empty())  // a graph has the blocks that it has
      row.largest = largest_that_fits(variant, Maximize::Layers, hardware);
    if (row.largest)
      row.largest_parameters =
          build_model(job.model, static_cast<int>(row.largest->number)).parameter_count();
    if (tokens) add_totals(row.report, *tokens);
  }
  return rows;
}

std::string advice(const std::vector<ComparedStrategy>& rows, const Hardware& hardware) {
  std::vector<const ComparedStrategy*> fitting;
  std::vector<std::string> missing;
  for (const ComparedStrategy& row : rows)
    if (row.fits())
      fitting.push_back(&row);
    else
      missing.push_back(
          fmt::format("{} does not fit, it needs {}", to_string(row.strategy), needs_text(row)));
  if (fitting.empty()) return none_fits(rows, hardware);
  const ComparedStrategy& best = best_of(fitting);
  if (rows.size() == 1)
    return fmt::format("{}: it fits, it needs {}.", to_string(best.strategy), needs_text(best));
  return fmt::format("{}: {}; {}.", to_string(best.strategy),
                     missing.empty() ? "all fit" : fmt::format("{}", fmt::join(missing, "; ")),
                     speed_text(best, fitting));
}

}  // namespace shardplan
