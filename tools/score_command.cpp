#include <fmt/format.h>

#include "plans/error.h"
#include "tools/answers_json.h"
#include "tools/commands.h"
#include "tools/output_files.h"
#include "tools/progress_bar.h"
#include "tools/score.h"
#include "tools/score_svg.h"
#include "tools/score_text.h"

namespace shardplan {

int score_command(const ScoreOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  const std::vector<Framework> frameworks = read_frameworks(data_folder());
  const std::vector<CsvRow> rows = read_csv(options.table);
  Score result;
  {
    ProgressBar bar("Scoring", static_cast<std::int64_t>(rows.size()), 1.0);
    result = score(rows, frameworks, hardware,
                   [&](std::size_t row) { bar.show(static_cast<std::int64_t>(row), "rows"); });
  }
  if (result.figures.empty() && result.not_expressed.empty())
    throw InputError(
        fmt::format("{}: no row has a figure in one of the columns "
                    "tokens_per_s_per_gpu and peak_memory_GiB",
                    options.table));
  if (!options.svg.empty()) write_file(options.svg, score_svg(result));
  if (options.json)
    fmt::print("{}\n", score_json(result));
  else
    fmt::print("{}\n{}", figures_text(result, 0), summary_text(result));
  return kYes;
}

}  // namespace shardplan
