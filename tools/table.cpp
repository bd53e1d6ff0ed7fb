#include "tools/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "plans/error.h"

namespace shardplan {

void Table::add(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), "a row has one cell per column");
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::vector<std::string> headers;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    headers.push_back(columns_[c].header);
    widths.push_back(headers[c].size());
    for (const auto& row : rows_)
      widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c)
      line += columns_[c].align == Align::Left ? fmt::format("  {:<{}}", cells[c], widths[c])
                                               : fmt::format("  {:>{}}", cells[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  const bool has_header = std::ranges::any_of(headers, [](const auto& h) { return !h.empty(); });
  if (has_header) add_line(headers);
  for (const auto& row : rows_)
    add_line(row);
  return text;
}

}  // namespace shardplan
