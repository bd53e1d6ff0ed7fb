#include <fmt/format.h>

#include <algorithm>

#include "plans/document.h"
#include "plans/error.h"
#include "tools/answers_json.h"
#include "tools/commands.h"
#include "tools/comparison_text.h"
#include "tools/documents.h"
#include "tools/fit.h"
#include "tools/prediction_text.h"
#include "tools/progress_bar.h"
#include "tools/strategy_names.h"
#include "tools/table.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

constexpr std::string_view kCommand = "command line: fit";

Maximize maximize_named(const std::string& name) {
  return located(fmt::format("{}: --maximize", kCommand), [&] { return maximize_from(name); });
}

std::string rows_text(const std::vector<FittedStrategy>& rows, Maximize what) {
  Table table({{"strategy", Align::Left},
               {fmt::format("largest {}", to_string(what))},
               {"needs"},
               {"the next needs"},
               {"limit"},
               {"tokens/s per GPU"}});
  for (const FittedStrategy& row : rows) {
    const Bytes needed = fullest(row.report).memory.peak_device_bytes.value_or(0);
    const bool open = row.largest && !row.largest->next_device_bytes;
    table.add(
        {std::string(to_string(row.strategy)),
         row.largest ? fmt::format("{}{}", row.largest->number, open ? " (as far as tried)" : "")
                     : "none",
         row.largest ? format_bytes(needed) : "-",
         !row.largest ? format_bytes(needed)
         : open       ? "-"
                      : format_bytes(*row.largest->next_device_bytes),
         format_bytes(row.report.limit_bytes.value_or(0)),
         row.largest && row.report.time ? rate_text(row.report.time->tokens_per_s_per_gpu) : "-"});
  }
  return table.text();
}

}  // namespace

int fit_command(const FitOptions& options) {
  std::vector<Strategy> strategies = strategies_named(kCommand, options.strategies);
  const Maximize what = maximize_named(options.maximize);
  const Hardware hardware = Hardware::read(data_folder());
  const Job job = load_job(options.job, hardware);
  if (strategies.empty()) strategies = usual_strategies(job, job.cluster.nodes > 1);

  std::vector<FittedStrategy> rows;
  {
    ProgressBar bar("Fitting", static_cast<std::int64_t>(strategies.size()), 1.0);
    for (const Strategy strategy : strategies) {
      bar.show(static_cast<std::int64_t>(rows.size()), to_string(strategy));
      rows.push_back(fit_strategy(job, strategy, what, hardware));
    }
  }
  if (options.json)
    fmt::print("{}\n", fit_json(job, what, rows));
  else
    fmt::print("{}\n{}", assumptions_text(rows.front().plan, engines_of(rows)),
               rows_text(rows, what));
  return std::ranges::any_of(rows,
                             [](const FittedStrategy& row) { return row.largest.has_value(); })
             ? kYes
             : kNo;
}

}  // namespace shardplan
