#include "tests/oracle/table.h"

#include <fmt/format.h>

#include <sstream>

#include "plans/document.h"
#include "plans/error.h"

namespace shardplan::oracle {
namespace {

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

}  // namespace

std::vector<TableRow> read_table(const std::filesystem::path& path) {
  std::istringstream text(read_text(path.string()));
  std::string line;
  std::getline(text, line);
  const std::vector<std::string> columns = cells_of(line);
  std::vector<TableRow> rows;
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

}  // namespace shardplan::oracle
