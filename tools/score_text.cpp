#include "tools/score_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plans/units.h"
#include "tools/table.h"

namespace shardplan {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string amount_text(const ScoredFigure& figure, double amount) {
  return figure.quantity == Quantity::PeakMemory ? format_bytes(std::llround(amount))
                                                 : fmt::format("{:.0f} tokens/s", amount);
}

std::string errors_of(const Score& score, Quantity quantity) {
  std::vector<NamedSummary> summaries;
  const auto add = [&](const std::string& name,
                       const std::function<bool(const ScoredFigure&)>& is_wanted) {
    const ErrorSummary summary = summary_of(figures_of(score, quantity, is_wanted));
    if (summary.rows > 0) summaries.push_back({name, summary});
  };
  add("all", [](const ScoredFigure&) { return true; });
  if (summaries.empty()) return "";
  add("constants are fitted to", [](const ScoredFigure& figure) { return figure.tells_constants; });
  add("nothing assumed", [](const ScoredFigure& figure) { return figure.assumed.empty(); });
  std::vector<std::string> groups;
  for (const ScoredFigure* figure : figures_of(score, quantity))
    if (std::ranges::find(groups, figure->group) == groups.end()) groups.push_back(figure->group);
  for (const std::string& group : groups)
    add(group, [&](const ScoredFigure& figure) { return figure.group == group; });
  return errors_text(fmt::format("{}: error", to_string(quantity)), summaries);
}

std::string reasons_text(const Score& score) {
  if (score.not_expressed.empty()) return "";
  std::map<std::string, int> counts;
  for (const NotScored& row : score.not_expressed)
    ++counts[row.reason];
  Table table({{"rows"}, {"not expressed, because", Align::Left}});
  for (const auto& [reason, count] : counts)
    table.add({fmt::format("{}", count), reason});
  return table.text();
}

/// Figures that take no part in summaries, with their reason.
std::string set_aside_text(const Score& score) {
  Table table({{"set aside", Align::Left}, {"error"}, {"because", Align::Left}});
  bool any = false;
  for (const ScoredFigure& figure : score.figures)
    if (!figure.set_aside.empty()) {
      any = true;
      table.add({figure.id, fmt::format("{:+.1f} %", 100 * figure.error()), figure.set_aside});
    }
  return any ? table.text() : "";
}

}  // namespace

std::string errors_text(const std::string& of_what, const std::vector<NamedSummary>& summaries) {
  Table table(
      {{of_what, Align::Left}, {"rows"}, {"median"}, {"90th"}, {"worst"}, {"median with sign"}});
  for (const auto& [name, summary] : summaries)
    table.add({name, fmt::format("{}", summary.rows), percent(summary.median), percent(summary.p90),
               percent(summary.worst), fmt::format("{:+.1f} %", 100 * summary.median_error)});
  return table.text();
}

std::string figures_text(const Score& score, double least_error) {
  Table table(
      {{"row", Align::Left}, {"predicted"}, {"measured"}, {"error"}, {"assumed", Align::Left}});
  for (const ScoredFigure& figure : score.figures)
    if (std::abs(figure.error()) >= least_error)
      table.add({figure.id, amount_text(figure, figure.predicted),
                 amount_text(figure, figure.measured),
                 fmt::format("{:+.1f} %", 100 * figure.error()),
                 fmt::format("{}", fmt::join(figure.assumed, ", "))});
  return table.text();
}

std::string summary_text(const Score& score) {
  return errors_of(score, Quantity::TokensPerSecond) + errors_of(score, Quantity::PeakMemory) +
         set_aside_text(score) + reasons_text(score);
}

}  // namespace shardplan
