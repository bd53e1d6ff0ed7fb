#include "tests/oracle/configs.h"

#include <fmt/format.h>

#include <vector>

#include "planner/model.h"
#include "plans/document.h"
#include "plans/error.h"
#include "tests/oracle/model_counts.h"
#include "tools/csv_table.h"

namespace shardplan::oracle {
namespace {

/// Nothing for a column that the table does not have or leaves empty.
void compare(const CsvRow& row, const std::string& column, const std::string& counted,
             std::vector<Check>& checks) {
  const auto cell = row.find(column);
  if (cell == row.end() || cell->second.empty()) return;
  const bool same = cell->second == counted;
  checks.push_back(
      {.what = same ? fmt::format("{} {}, deviation", column, counted)
                    : fmt::format("{} {} instead of {}, deviation", column, counted, cell->second),
       .value = same ? 0.0 : 1.0,
       .limit = 0});
}

std::vector<Check> checks_of(const CsvRow& row, const ModelCounts& counts) {
  std::vector<Check> checks;
  const auto number = [&](const char* column, std::int64_t counted) {
    compare(row, column, std::to_string(counted), checks);
  };
  number("total", counts.total);
  number("trainable", counts.trainable);
  number("embedding", counts.embedding);
  number("token_embedding", counts.token_embedding);
  number("lm_head", counts.lm_head);
  number("per_layer", counts.per_layer);
  number("n_layers", counts.n_layers);
  number("other", counts.other);
  compare(row, "layer_class", counts.layer_class, checks);
  compare(row, "all_blocks", counts.all_blocks, checks);
  compare(row, "tied", counts.tied ? "true" : "false", checks);
  compare(row, "class", counts.model_class, checks);
  return checks;
}

Outcome outcome_of(const CsvRow& row, const std::filesystem::path& folder) {
  Outcome outcome{.name = row.at("model"), .checks = {}, .error = {}, .skipped = {}};
  try {
    const ModelJob model{.hf_config = (folder / outcome.name).string()};
    outcome.checks = checks_of(row, count_parameters(build_model(model)));
  } catch (const InputError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

}  // namespace

int configs(const std::filesystem::path& folder, Scorecard::Form form) {
  const std::vector<CsvRow> rows = read_csv((folder / "params.csv").string());
  if (!rows.front().contains("model"))
    throw InputError(fmt::format("{}: no column 'model'", (folder / "params.csv").string()));
  Scorecard scorecard(form);
  for (const CsvRow& row : rows)
    scorecard.add(outcome_of(row, folder));
  return scorecard.close();
}

}  // namespace shardplan::oracle
