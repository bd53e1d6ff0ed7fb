#include "tools/csv_table.h"

#include <csv.h>
#include <fmt/format.h>

#include "plans/document.h"
#include "plans/error.h"

namespace shardplan {
namespace {

constexpr std::size_t kLargestTable = std::size_t{64} << 20;  // bytes

/// Records of a CSV text, as libcsv reports them.
class Records {
 public:
  Records(const std::string& text, const std::string& source) {
    csv_parser parser;
    if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) throw std::bad_alloc();
    const bool whole =
        csv_parse(&parser, text.data(), text.size(), add_cell, end_record, this) == text.size() &&
        csv_fini(&parser, add_cell, end_record, this) == 0;
    const std::string why = csv_strerror(csv_error(&parser));
    csv_free(&parser);
    if (!whole) throw InputError(fmt::format("{}: record {}: {}", source, records_.size(), why));
    records_.pop_back();  // the one after the last line's end
  }

  const std::vector<std::vector<std::string>>& records() const { return records_; }

 private:
  static void add_cell(void* bytes, std::size_t size, void* self) {
    static_cast<Records*>(self)->records_.back().emplace_back(static_cast<const char*>(bytes),
                                                              size);
  }
  static void end_record(int, void* self) { static_cast<Records*>(self)->records_.emplace_back(); }

  std::vector<std::vector<std::string>> records_{1};
};

}  // namespace

std::vector<CsvRow> read_csv(const std::string& path) {
  const Records file(read_text(path, kLargestTable), path);
  const auto& records = file.records();
  if (records.size() < 2) throw InputError(fmt::format("{}: no rows", path));
  const std::vector<std::string>& columns = records.front();
  std::vector<CsvRow> rows;
  for (std::size_t r = 1; r < records.size(); ++r) {
    const std::vector<std::string>& cells = records[r];
    if (cells.size() != columns.size())
      throw InputError(fmt::format("{}: record {}: {} cells, expected {}", path, r + 1,
                                   cells.size(), columns.size()));
    CsvRow& row = rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i)
      row[columns[i]] = cells[i];
  }
  return rows;
}

}  // namespace shardplan
