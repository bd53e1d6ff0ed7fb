#include "tools/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

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
                       memory.at_peak ? std::optional((*memory.at_peak)[c]) : std::nullopt});
  for (int p = 0; p < kPhases; ++p)
    metrics.push_back(
        {fmt::format("phases.{}.peak_bytes", to_string(static_cast<Phase>(p))), Allocated,
         memory.phases[p] ? std::optional(memory.phases[p]->peak_bytes) : std::nullopt});
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
  bool includes(const Range& other) const { return first <= other.first && other.last <= last; }
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

const RankReport& entry_for(const Report& predicted, const std::string& ranks) {
  const Range range = range_of(ranks);
  for (const RankReport& rank : predicted.ranks)
    if (range_of(rank.ranks).includes(range)) return rank;
  throw InputError(
      fmt::format("rank {} was measured, but no entry of the prediction includes it", ranks));
}

bool passes(double difference, double allowed, Side side) {
  switch (side) {
    case Side::Both: return std::abs(difference) <= allowed;
    case Side::Over: return difference <= allowed;
    case Side::Under: return -difference <= allowed;
  }
  return false;
}

double allowed_bytes(Bytes predicted, MemoryKind kind, const Tolerances& tolerances) {
  if (kind == MemoryKind::Allocated && tolerances.exact) return 0;
  const Bytes floor = kind == MemoryKind::Allocated ? kAllocatedFloor : kDeviceFloor;
  return std::max(tolerances.share * static_cast<double>(predicted), static_cast<double>(floor));
}

/// Adds what one rank shows; `seen` receives the metrics that both sides have.
void hold_rank(const RankReport& predicted, const RankReport& measured,
               const Tolerances& tolerances, std::vector<Finding>& findings) {
  const std::vector<MemoryMetric> expected = metrics_of(predicted.memory);
  const std::vector<MemoryMetric> actual = metrics_of(measured.memory);
  for (std::size_t m = 0; m < expected.size(); ++m) {
    if (!expected[m].bytes || !actual[m].bytes || !is_wanted(tolerances, expected[m].name))
      continue;
    Finding finding{.metric = expected[m].name, .against = "prediction", .ranks = measured.ranks};
    finding.predicted = static_cast<double>(*expected[m].bytes);
    finding.measured = static_cast<double>(*actual[m].bytes);
    finding.allowed = allowed_bytes(*expected[m].bytes, expected[m].kind, tolerances);
    finding.passed = passes(finding.difference(), finding.allowed, tolerances.side);
    findings.push_back(std::move(finding));
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
  Finding finding{.metric = "step_s", .against = "prediction", .ranks = ""};
  finding.predicted = *expected;
  finding.measured = *actual;
  finding.allowed = *tolerances.time_share * *expected;
  finding.passed = passes(finding.difference(), finding.allowed, tolerances.side);
  findings.push_back(std::move(finding));
}

bool has_metric(const std::vector<Finding>& findings, std::string_view metric) {
  return std::ranges::find(findings, metric, &Finding::metric) != findings.end();
}

/// Metrics of the prediction that the measurement lacks.
std::vector<std::string> not_measured(const Report& predicted, const std::vector<Finding>& findings,
                                      const Tolerances& tolerances) {
  std::vector<std::string> missing;
  for (const RankReport& rank : predicted.ranks)
    for (const MemoryMetric& metric : metrics_of(rank.memory)) {
      const bool known = std::ranges::find(missing, metric.name) != missing.end();
      if (metric.bytes && is_wanted(tolerances, metric.name) && !known &&
          !has_metric(findings, metric.name))
        missing.push_back(metric.name);
    }
  return missing;
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
    throw InputError("prediction and measurement have no metric in common");
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
    throw InputError(fmt::format("measured on {} ranks, but predicted for {}", measured.world_size,
                                 predicted.world_size));
  CheckResult result;
  for (const RankReport& rank : measured.ranks)
    hold_rank(entry_for(predicted, rank.ranks), rank, tolerances, result.findings);
  hold_time(predicted, measured, tolerances, result.findings);
  expect_wanted(result, tolerances);
  result.not_measured = not_measured(predicted, result.findings, tolerances);
  return result;
}

std::vector<Finding> worst_by_metric(const std::vector<Finding>& findings) {
  const auto excess = [](const Finding& finding) {
    return std::abs(finding.difference()) - finding.allowed;
  };
  std::vector<Finding> worst;
  for (const Finding& finding : findings) {
    const auto known = std::ranges::find_if(worst, [&](const Finding& other) {
      return other.metric == finding.metric && other.against == finding.against;
    });
    if (known == worst.end()) {
      worst.push_back(finding);
    } else if (finding.passed < known->passed ||
               (finding.passed == known->passed && excess(finding) > excess(*known))) {
      *known = finding;
    }
  }
  return worst;
}

}  // namespace shardplan
