#include "tests/oracle/bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <utility>
#include <vector>

#include "planner/cost/collective.h"
#include "plans/error.h"
#include "plans/hardware.h"
#include "tools/csv_table.h"

namespace shardplan::oracle {
namespace {

constexpr double kBar = 0.20;         // median error of a table's times
constexpr double kBarOfLarge = 0.12;  // of its messages from kLarge on
constexpr Bytes kLarge = Bytes{8} << 20;

/// The catalogue's key of a GPU as the tables name it, mostly without the size of its memory.
std::string gpu_key(const std::string& name) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"V100-SXM", "v100-sxm2-16"}, {"A100-SXM", "a100-sxm-80"},
      {"H100-SXM", "h100-sxm-80"},  {"H200", "h200"},
      {"GB200", "gb200"},           {"B200", "b200"},
      {"MI300X", "mi300x"}};
  for (const auto& [begin, key] : names)
    if (name.starts_with(begin)) return key;
  return name;
}

/// Bytes per second of "EFA v3, 16 x 200 Gb/s per node"; nothing when no such rate is stated.
std::optional<double> stated_rate(const std::string& link) {
  static const std::regex cards(R"((?:(\d+) x )?(\d+) Gb/s)");
  std::smatch match;
  if (!std::regex_search(link, match, cards)) return std::nullopt;
  const double count = match[1].matched ? std::stod(match[1]) : 1;
  return count * std::stod(match[2]) * 1e9 / 8;
}

CollectiveKind kind_named(const std::string& name) {
  if (name == "all_reduce") return CollectiveKind::AllReduce;
  if (name == "all_gather") return CollectiveKind::AllGather;
  if (name == "reduce_scatter") return CollectiveKind::ReduceScatter;
  throw InputError(fmt::format("collective {} is not known", name));
}

/// The algorithm that a row names; nothing where it does not, or where it changes with the size.
std::optional<CollectiveAlgorithm> algorithm_of(const CsvRow& row) {
  for (const auto algorithm : {CollectiveAlgorithm::Ring, CollectiveAlgorithm::Tree,
                               CollectiveAlgorithm::Nvls, CollectiveAlgorithm::NvlsTree})
    if (row.at("algorithm") == to_string(algorithm)) return algorithm;
  return std::nullopt;
}

/// Seconds as printed, else as they follow from the printed bandwidth.
double measured(const CsvRow& row) {
  const std::string& printed = row.at("time_us");
  return std::stod(printed.empty() ? row.at("derived_time_us") : printed) * 1e-6;
}

Seconds predicted(const CsvRow& row, const Hardware& hardware) {
  const GpuSpec& gpu = hardware.gpu(gpu_key(row.at("gpu")));
  NetworkSpec network = hardware.network_of(gpu);
  if (const auto rate = stated_rate(row.at("inter_link"))) network.inter_node_bytes_per_s = *rate;
  const GroupPlacement group{.ranks = std::stoll(row.at("ranks")),
                             .nodes = std::stoll(row.at("nodes"))};
  return collective_time(kind_named(row.at("collective")), std::stoll(row.at("size_bytes")), group,
                         network, hardware.costs(Profile::Cuda), algorithm_of(row));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string not_stated(const CsvRow& row) {
  if (row.at("gpu") == "unstated") return "the table does not say which GPU";
  if (std::stoll(row.at("nodes")) > 1 && !stated_rate(row.at("inter_link")))
    return "the table does not say how fast the nodes are connected";
  return {};
}

Outcome outcome_of(const std::string& name, const std::vector<CsvRow>& rows,
                   const Hardware& hardware) {
  Outcome outcome{.name = name, .checks = {}, .error = {}, .skipped = not_stated(rows.front())};
  if (!outcome.skipped.empty()) return outcome;
  try {
    std::vector<double> errors;
    std::vector<double> errors_of_large;
    for (const CsvRow& row : rows) {
      const double error = std::abs(predicted(row, hardware) / measured(row) - 1);
      errors.push_back(error);
      if (std::stoll(row.at("size_bytes")) >= kLarge) errors_of_large.push_back(error);
    }
    const auto add = [&](const char* what, const std::vector<double>& of, double bar) {
      if (!of.empty())
        outcome.checks.push_back(
            {fmt::format("median error of {} {}", of.size(), what), median(of), bar});
    };
    add("times", errors, kBar);
    add("times from 8 MiB on", errors_of_large, kBarOfLarge);
  } catch (const InputError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

}  // namespace

int bandwidth(const std::filesystem::path& file, Scorecard::Form form) {
  const Hardware hardware = Hardware::read(data_folder());
  std::vector<std::pair<std::string, std::vector<CsvRow>>> tables;
  for (CsvRow& row : read_csv(file)) {
    const std::string name = row.at("table");
    auto table = std::ranges::find(tables, name, [](const auto& known) { return known.first; });
    if (table == tables.end()) table = tables.insert(table, {name, {}});
    table->second.push_back(std::move(row));
  }
  Scorecard scorecard(form);
  for (const auto& [name, rows] : tables)
    scorecard.add(outcome_of(name, rows, hardware));
  return scorecard.close();
}

}  // namespace shardplan::oracle
