#pragma once

#include <string>
#include <vector>

namespace shardplan {

/// Where a column's cells stand: words to the left, numbers to the right.
enum class Align { Left, Right };

struct Column {
  std::string header;
  Align align = Align::Right;
};

/// Rows of text cells, printed as columns two spaces apart.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell per column.
  void add(std::vector<std::string> cells);
  /// The table, each line indented by two spaces and ended by a line feed; no trailing spaces. A
  /// table of which every header is empty has no header line.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace shardplan
