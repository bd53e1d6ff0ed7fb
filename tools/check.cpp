#include "tools/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "plans/error.h"

namespace shardplan {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
constexpr Bytes kAllocatedFloor = 2 * kMiB;
constexpr Bytes kDeviceFloor = 64 * kMiB;

enum class MemoryKind { Allocated, Device };

struct MemoryMetric {
  std::string name;
  MemoryKind kind;
  std::optional<Bytes> bytes;
};

/// Every figure of memory that can be on both sides.
std::vector<MemoryMetric> metrics_of(const RankMemory& memory) {
  using enum MemoryKind;
  std::vector<MemoryMetric> metrics{
      {"peak_allocated_bytes", Allocated, memory.peak_allocated_bytes},
      {"peak_reserved_bytes", Allocated, memory.peak_reserved_bytes},
      {"peak_device_bytes", Device, memory.peak_device_bytes},
      {"host_bytes", Device, memory.host_bytes},
      {"outside_allocator.device_context", Device, memory.device_context_bytes},
      {"outside_allocator.communicator", Device, memory.communicator_bytes},
      {"outside_allocator.library_workspace", Device, memory.library_workspace_bytes}};
  for (int c = 0; c < kCategories; ++c)
    metrics.push_back({fmt::format("at_peak.{}", to_string(static_cast<Category>(c))), Allocated,
                       memory.at_peak[c]});
  for (int p = 0; p < kRunPhases; ++p)
    metrics.push_back({fmt::format("phases.{}.peak_bytes", to_string(static_cast<RunPhase>(p))),
                       Allocated, memory.phases[p].peak_bytes});
  return metrics;
}

/// True for the metric `wanted` and for those below it: "at_peak" means "at_peak.activations" too.
bool means(const std::string& wanted, std::string_view metric) {
  return metric == wanted || metric.starts_with(wanted + ".");
}

bool is_wanted(const Tolerances& tolerances, std::string_view metric) {
  return tolerances.metrics.empty() ||
         std::ranges::any_of(tolerances.metrics,
                             [&](const std::string& wanted) { return means(wanted, metric); });
}

struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool includes(std::int64_t rank) const { return first <= rank && rank <= last; }
};

/// "0-7" or "3".
Range range_of(const std::string& text) {
  Range range;
  const char* end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, range.first);
  range.last = range.first;
  if (result.ec == std::errc() && result.ptr != end && *result.ptr == '-')
    result = std::from_chars(result.ptr + 1, end, range.last);
  if (result.ec != std::errc() || result.ptr != end || range.last < range.first)
    throw InputError(fmt::format("ranks \"{}\": expected ranks such as \"3\" or \"0-7\"", text));
  return range;
}

/// The entries of the expectation that speak of these ranks.
std::vector<const RankReport*> entries_for(const Report& expected, const Range& range,
                                           const std::string& against) {
  std::vector<const RankReport*> entries;
  for (std::int64_t next = range.first; next <= range.last;) {
    const auto entry = std::ranges::find_if(expected.ranks, [&](const RankReport& rank) {
      return range_of(rank.ranks).includes(next);
    });
    if (entry == expected.ranks.end())
      throw InputError(
          fmt::format("rank {} was measured, but no entry of the {} includes it", next, against));
    entries.push_back(&*entry);
    next = range_of(entry->ranks).last + 1;
  }
  return entries;
}

/// Ranks of all entries, ascending. Throws InputError when two entries share a rank.
std::vector<Range> ranks_of(const Report& report) {
  std::vector<Range> ranges;
  for (const RankReport& rank : report.ranks)
    ranges.push_back(range_of(rank.ranks));
  std::ranges::sort(ranges, {}, &Range::first);
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first <= ranges[i - 1].last)
      throw InputError(fmt::format("rank {} has more than one entry", ranges[i].first));
  return ranges;
}

/// Ranks of the first list that the second lacks; both ascending.
std::vector<std::string> missing_ranks(const std::vector<Range>& all,
                                       const std::vector<Range>& some) {
  std::vector<std::string> missing;
  const auto add = [&](std::int64_t first, std::int64_t last) {
    if (first == last) missing.push_back(fmt::format("rank {}", first));
    if (first < last) missing.push_back(fmt::format("ranks {}-{}", first, last));
  };
  for (const Range& range : all) {
    std::int64_t next = range.first;
    for (const Range& known : some) {
      if (known.last < next || known.first > range.last) continue;
      add(next, known.first - 1);
      next = known.last + 1;
    }
    add(next, range.last);
  }
  return missing;
}

/// How far a difference goes on the side that counts.
double size_of(double difference, Side side) {
  switch (side) {
    case Side::Both: return std::abs(difference);
    case Side::Over: return difference;
    case Side::Under: return -difference;
  }
  return 0;
}

/// Holds the two values of a finding against each other.
Finding judged(Finding finding, const Tolerances& tolerances) {
  finding.against = tolerances.against;
  finding.excess = size_of(finding.difference(), tolerances.side) - finding.allowed;
  return finding;
}

double allowed_bytes(Bytes predicted, MemoryKind kind, const Tolerances& tolerances) {
  if (kind == MemoryKind::Allocated && tolerances.exact) return 0;
  const Bytes floor = kind == MemoryKind::Allocated ? kAllocatedFloor : kDeviceFloor;
  return std::max(tolerances.share * static_cast<double>(predicted), static_cast<double>(floor));
}

/// Adds what one rank shows.
void hold_rank(const RankReport& predicted, const RankReport& measured,
               const Tolerances& tolerances, CheckResult& result) {
  const std::vector<MemoryMetric> expected = metrics_of(predicted.memory);
  const std::vector<MemoryMetric> actual = metrics_of(measured.memory);
  for (std::size_t m = 0; m < expected.size(); ++m) {
    if (!expected[m].bytes || !is_wanted(tolerances, expected[m].name)) continue;
    if (!actual[m].bytes) {
      result.not_measured.push_back(fmt::format("{} on rank {}", expected[m].name, measured.ranks));
      continue;
    }
    result.findings.push_back(
        judged({.metric = expected[m].name,
                .ranks = measured.ranks,
                .predicted = static_cast<double>(*expected[m].bytes),
                .measured = static_cast<double>(*actual[m].bytes),
                .allowed = allowed_bytes(*expected[m].bytes, expected[m].kind, tolerances)},
               tolerances));
  }
}

/// Seconds of a steady step, predicted or measured.
std::optional<Seconds> step_seconds(const Report& report) {
  if (report.time && report.time->step_s > 0) return report.time->step_s;
  return steady_step_seconds(report.steps);
}

void hold_time(const Report& predicted, const Report& measured, const Tolerances& tolerances,
               std::vector<Finding>& findings) {
  const auto expected = step_seconds(predicted);
  const auto actual = step_seconds(measured);
  if (!tolerances.time_share || !expected || !actual || !is_wanted(tolerances, "step_s")) return;
  findings.push_back(judged({.metric = "step_s",
                             .predicted = *expected,
                             .measured = *actual,
                             .allowed = *tolerances.time_share * *expected},
                            tolerances));
}

bool has_metric(const std::vector<Finding>& findings, std::string_view metric) {
  return std::ranges::find(findings, metric, &Finding::metric) != findings.end();
}

/// A metric that no rank measured is named once, not for each of them.
void shorten(const std::vector<MemoryMetric>& metrics, CheckResult& result) {
  for (const MemoryMetric& metric : metrics) {
    if (has_metric(result.findings, metric.name)) continue;
    const auto of_metric = [&](const std::string& missing) {
      return missing.starts_with(metric.name + " on rank ");
    };
    const auto first = std::ranges::find_if(result.not_measured, of_metric);
    if (first == result.not_measured.end()) continue;
    *first = metric.name;
    std::erase_if(result.not_measured, of_metric);
  }
}

void expect_wanted(const CheckResult& result, const Tolerances& tolerances) {
  for (const std::string& wanted : tolerances.metrics) {
    const bool found = std::ranges::any_of(
        result.findings, [&](const Finding& finding) { return means(wanted, finding.metric); });
    if (found) continue;
    const bool needs_tolerance = wanted == "step_s" && !tolerances.time_share;
    throw InputError(
        fmt::format("--metrics {}: {}", wanted,
                    needs_tolerance ? "needs --time-tolerance" : "is not on both sides"));
  }
  if (result.findings.empty())
    throw InputError(
        fmt::format("{} and measurement have no metric in common", tolerances.against));
}

}  // namespace

bool CheckResult::passed() const { return std::ranges::all_of(findings, &Finding::passed); }

std::vector<std::string> metric_names() {
  std::vector<std::string> names{"at_peak", "outside_allocator", "phases", "step_s"};
  for (const MemoryMetric& metric : metrics_of(RankMemory{}))
    names.push_back(metric.name);
  return names;
}

CheckResult hold_against(const Report& predicted, const Report& measured,
                         const Tolerances& tolerances) {
  if (predicted.world_size != 0 && measured.world_size != 0 &&
      predicted.world_size != measured.world_size)
    throw InputError(fmt::format("measured on {} ranks, but the {} is of {}", measured.world_size,
                                 tolerances.against, predicted.world_size));
  const std::vector<Range> ranks = ranks_of(measured);
  CheckResult result;
  for (const RankReport& rank : measured.ranks)
    for (const RankReport* entry : entries_for(predicted, range_of(rank.ranks), tolerances.against))
      hold_rank(*entry, rank, tolerances, result);
  const std::vector<std::string> missing = missing_ranks(ranks_of(predicted), ranks);
  if (tolerances.exact && measured.rehearsal.empty() && !missing.empty())
    throw InputError(fmt::format("--exact: {} of {} were not measured", fmt::join(missing, ", "),
                                 predicted.world_size));
  hold_time(predicted, measured, tolerances, result.findings);
  expect_wanted(result, tolerances);
  shorten(metrics_of(RankMemory{}), result);
  std::ranges::copy(missing, std::back_inserter(result.not_measured));
  return result;
}

std::vector<Finding> worst_by_metric(const std::vector<Finding>& findings) {
  std::vector<Finding> worst;
  for (const Finding& finding : findings) {
    const auto known = std::ranges::find_if(worst, [&](const Finding& other) {
      return other.metric == finding.metric && other.against == finding.against;
    });
    if (known == worst.end()) {
      worst.push_back(finding);
    } else if (finding.excess > known->excess) {
      *known = finding;
    }
  }
  return worst;
}

}  // namespace shardplan
