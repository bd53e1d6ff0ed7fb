#pragma once

#include <map>
#include <string>
#include <vector>

namespace shardplan {

/// Cells by column.
using CsvRow = std::map<std::string, std::string>;

/// The rows of a CSV file (RFC 4180) of at most 64 MiB whose first record names the columns. Throws
/// InputError when there are none, when one has another number of cells, or when quotes are wrong.
std::vector<CsvRow> read_csv(const std::string& path);

}  // namespace shardplan
