#include "tools/score.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plans/document.h"
#include "plans/names.h"
#include "simulator/simulate.h"
#include "tools/prediction_text.h"
#include "tools/published_job.h"

namespace shardplan {
namespace {

constexpr std::array kQuantities{
    EnumName{Quantity::TokensPerSecond, "tokens_per_s_per_gpu"},
    EnumName{Quantity::PeakMemory, "peak_memory_bytes"},
};

/// What PyTorch counts under the name that the row uses; nothing for what it does not count.
std::optional<Bytes> predicted_peak(const CsvRow& row, std::optional<Engine> engine,
                                    const RankMemory& memory) {
  const std::string kind = cell_of(row, "peak_kind_norm");
  if (kind == "allocated") return memory.peak_allocated_bytes;
  if (kind == "reserved") return memory.peak_reserved_bytes;
  // What is allocated or waits for another stream; only FSDP1 lets blocks wait.
  if (kind == "active" && engine != Engine::Fsdp1) return memory.peak_allocated_bytes;
  return std::nullopt;
}

/// Adds what the row has measured.
void score_row(const CsvRow& row, const std::vector<Framework>& frameworks,
               const Hardware& hardware, Score& score) {
  const double speed = stated_or_derived(row, "tokens_per_s_per_gpu");
  const double peak = stated_or_derived(row, "peak_memory_GiB") * static_cast<double>(kGiB);
  if (speed <= 0 && peak <= 0) return;
  const PublishedPlan published = published_plan(row, frameworks, hardware);
  const Plan& plan = published.plan;
  const Report report = simulate(plan, hardware.costs(plan.profile));
  ScoredFigure figure;
  figure.id = cell_of(row, "id");
  figure.group = cell_of(row, "family");
  figure.assumed = published.assumed;
  figure.tells_constants = published.tells_constants();
  if (speed > 0 && report.time) {
    figure.predicted = report.time->tokens_per_s_per_gpu;
    figure.measured = speed;
    score.figures.push_back(figure);
  }
  // What is kept for backward decides about memory.
  if (peak <= 0 || !is_torch(plan.profile) || published.leaves_open(kUnknownCheckpointing)) return;
  if (const auto predicted =
          predicted_peak(row, plan.job.strategy.engine, fullest(report).memory)) {
    figure.quantity = Quantity::PeakMemory;
    figure.predicted = static_cast<double>(*predicted);
    figure.measured = peak;
    score.figures.push_back(figure);
  }
}

/// The value below which `share` of the sorted values lie, between the two nearest ones.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

SetAside read_set_aside(const std::string& folder, Quantity quantity) {
  const std::string path = folder + "/set_aside.yaml";
  const Node document = parse_yaml(read_text(path), path);
  SetAside reasons;
  for (const Node& entry : document.items) {
    Fields fields(entry, "entry");
    std::string of;
    std::string reason;
    fields.read("quantity", of);
    fields.read("reason", reason);
    const Node* rows = fields.find("rows");
    fields.refuse_unknown();
    if (rows == nullptr || reason.empty()) fail(entry, "needs rows and a reason");
    if (of != to_string(quantity)) continue;
    for (const std::string& id : texts_of(*rows, "rows"))
      reasons[id] = reason;
  }
  return reasons;
}

std::string_view to_string(Quantity quantity) { return name_of(kQuantities, quantity); }

Score score(const std::vector<CsvRow>& rows, const std::vector<Framework>& frameworks,
            const Hardware& hardware, const std::function<void(std::size_t)>& on_row) {
  Score score;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    on_row(r);
    try {
      score_row(rows[r], frameworks, hardware, score);
    } catch (const NotExpressed& reason) {
      score.not_expressed.push_back({cell_of(rows[r], "id"), reason.what()});
    }
  }
  const SetAside reasons = read_set_aside(data_folder(), Quantity::PeakMemory);
  for (ScoredFigure& figure : score.figures)
    if (const auto reason = reasons.find(figure.id);
        reason != reasons.end() && figure.quantity == Quantity::PeakMemory)
      figure.set_aside = reason->second;
  return score;
}

ErrorSummary summary_of(const std::vector<double>& errors) {
  ErrorSummary summary;
  summary.rows = errors.size();
  if (errors.empty()) return summary;
  std::vector<double> signed_errors = errors;
  std::vector<double> sizes;
  for (const double error : errors)
    sizes.push_back(std::abs(error));
  std::ranges::sort(sizes);
  std::ranges::sort(signed_errors);
  summary.median = quantile(sizes, 0.5);
  summary.p90 = quantile(sizes, 0.9);
  summary.worst = sizes.back();
  summary.median_error = quantile(signed_errors, 0.5);
  return summary;
}

ErrorSummary summary_of(const std::vector<const ScoredFigure*>& figures) {
  std::vector<double> errors;
  for (const ScoredFigure* figure : figures)
    errors.push_back(figure->error());
  return summary_of(errors);
}

std::vector<const ScoredFigure*> figures_of(
    const Score& score, Quantity quantity,
    const std::function<bool(const ScoredFigure&)>& is_wanted) {
  std::vector<const ScoredFigure*> figures;
  for (const ScoredFigure& figure : score.figures)
    if (figure.quantity == quantity && figure.set_aside.empty() && is_wanted(figure))
      figures.push_back(&figure);
  return figures;
}

}  // namespace shardplan
