#include <fmt/format.h>

#include <algorithm>

#include "plans/error.h"
#include "tools/answers_json.h"
#include "tools/break_even.h"
#include "tools/commands.h"
#include "tools/comparison.h"
#include "tools/comparison_text.h"
#include "tools/documents.h"
#include "tools/numbers.h"
#include "tools/progress_bar.h"
#include "tools/strategy_names.h"

namespace shardplan {
namespace {

constexpr std::string_view kCommand = "command line: compare";

/// Of FULL_SHARD over DDP, where both are compared.
std::optional<BreakEven> break_even_of(const Job& job, const std::vector<Strategy>& strategies,
                                       const Hardware& hardware) {
  for (const Strategy strategy : {Strategy::Ddp, Strategy::FullShard})
    if (std::ranges::find(strategies, strategy) == strategies.end()) return std::nullopt;
  return break_even(job, Strategy::FullShard, Strategy::Ddp, hardware);
}

bool answer(const std::vector<ComparedStrategy>& rows, std::optional<Strategy> required) {
  return std::ranges::any_of(rows, [&](const ComparedStrategy& row) {
    return row.fits() && (!required || row.strategy == *required);
  });
}

}  // namespace

int compare_command(const CompareOptions& options) {
  std::vector<Strategy> strategies = strategies_named(kCommand, options.strategies);
  std::optional<Strategy> required;
  if (!options.require.empty())
    required = strategy_named(fmt::format("{}: --require", kCommand), options.require);
  const std::optional<double> tokens =
      amount_of(fmt::format("{}: --tokens", kCommand), options.tokens);
  const Hardware hardware = Hardware::read(data_folder());
  const Job job = load_job(options.job, hardware);
  if (strategies.empty()) strategies = usual_strategies(job, job.cluster.nodes > 1);
  if (required && std::ranges::find(strategies, *required) == strategies.end())
    strategies.push_back(*required);

  std::vector<ComparedStrategy> rows;
  std::optional<BreakEven> even;
  {
    ProgressBar bar("Comparing", static_cast<std::int64_t>(strategies.size()), 1.0);
    std::int64_t done = 0;
    rows = compare_strategies(job, strategies, tokens, hardware,
                              [&](Strategy strategy) { bar.show(done++, to_string(strategy)); });
    even = break_even_of(job, strategies, hardware);
  }
  if (options.json) {
    fmt::print("{}\n", comparison_json(rows, even));
  } else {
    fmt::print("{}{}\n{}{}\n", assumptions_text(rows.front().plan, engines_of(rows)),
               comparison_text(rows, tokens, Palette()), even ? text_of(*even) + "\n" : "",
               advice(rows, hardware));
  }
  return answer(rows, required) ? kYes : kNo;
}

}  // namespace shardplan
