#include "tests/oracle/configs.h"

#include <fmt/format.h>

#include <map>
#include <sstream>
#include <vector>

#include "planner/model.h"
#include "plans/document.h"
#include "plans/error.h"
#include "tests/oracle/model_counts.h"

namespace shardplan::oracle {
namespace {

using Row = std::map<std::string, std::string>;  // by column

/// Cells of a line; quotes hold commas.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

std::vector<Row> read_table(const std::filesystem::path& path) {
  std::istringstream text(read_text(path.string()));
  std::string line;
  std::getline(text, line);
  const std::vector<std::string> columns = cells_of(line);
  std::vector<Row> rows;
  while (std::getline(text, line)) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != columns.size())
      throw InputError(fmt::format("{}:{}: {} cells, expected {}", path.string(), rows.size() + 2,
                                   cells.size(), columns.size()));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i == 0) rows.emplace_back();
      rows.back()[columns[i]] = cells[i];
    }
  }
  if (rows.empty()) throw InputError(fmt::format("{}: no rows", path.string()));
  return rows;
}

/// Nothing for a column that the table does not have or leaves empty.
void compare(const Row& row, const std::string& column, const std::string& counted,
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

std::vector<Check> checks_of(const Row& row, const ModelCounts& counts) {
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

Outcome outcome_of(const Row& row, const std::filesystem::path& folder) {
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
  const std::vector<Row> rows = read_table(folder / "params.csv");
  if (!rows.front().contains("model"))
    throw InputError(fmt::format("{}: no column 'model'", (folder / "params.csv").string()));
  Scorecard scorecard(form);
  for (const Row& row : rows)
    scorecard.add(outcome_of(row, folder));
  return scorecard.close();
}

}  // namespace shardplan::oracle
