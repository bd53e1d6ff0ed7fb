#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace shardplan::oracle {

/// Cells by column.
using TableRow = std::map<std::string, std::string>;

/// The rows of a CSV file whose first line names the columns; quotes hold commas. Throws InputError
/// when there are none, or when one has another number of cells.
std::vector<TableRow> read_table(const std::filesystem::path& path);

}  // namespace shardplan::oracle
