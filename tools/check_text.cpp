#include "tools/check_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tools/table.h"

namespace shardplan {
namespace {

std::string amount_text(const Finding& finding, double amount) {
  return finding.is_time() ? format_seconds(amount) : format_bytes(std::llround(amount));
}

/// Signed, and in bytes: that two sizes differ must not vanish in rounding.
std::string difference_text(const Finding& finding) {
  const double difference = finding.difference();
  if (finding.is_time())
    return fmt::format("{}{}", difference < 0 ? "-" : "+", format_seconds(std::abs(difference)));
  return difference == 0 ? "0 B" : fmt::format("{:+} B", std::llround(difference));
}

std::string share_of(const Finding& finding) {
  if (finding.predicted == 0) return finding.measured == 0 ? "0.00 %" : "-";
  return fmt::format("{:+.2f} %", 100 * finding.difference() / finding.predicted);
}

std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text)
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  return escaped;
}

std::string name_of(const Finding& finding) {
  return finding.against == "prediction" ? finding.metric
                                         : fmt::format("{} ({})", finding.metric, finding.against);
}

}  // namespace

std::string finding_text(const Finding& finding) {
  return fmt::format("{}{}: {} {}, measured {}, {} ({}), {} allowed", finding.metric,
                     finding.ranks.empty() ? "" : " on rank " + finding.ranks,
                     finding.against == "prediction" ? "predicted" : finding.against,
                     amount_text(finding, finding.predicted),
                     amount_text(finding, finding.measured), difference_text(finding),
                     share_of(finding), amount_text(finding, finding.allowed));
}

std::string check_text(const CheckResult& result, const Palette& palette) {
  const std::vector<Finding> worst = worst_by_metric(result.findings);
  Table table({{"metric", Align::Left},
               {"worst rank"},
               {"predicted"},
               {"measured"},
               {"difference"},
               {"share"},
               {"allowed"},
               {"", Align::Left}});
  std::string failures;
  for (const Finding& finding : worst) {
    table.add({name_of(finding), finding.ranks.empty() ? "all" : finding.ranks,
               amount_text(finding, finding.predicted), amount_text(finding, finding.measured),
               difference_text(finding), share_of(finding), amount_text(finding, finding.allowed),
               finding.passed() ? "ok" : "FAILED"});
    if (!finding.passed())
      failures += fmt::format("{}: {}\n", palette(Tone::Bad, "Failed"), finding_text(finding));
  }
  std::string text = "\n" + table.text();
  if (!result.not_measured.empty())
    text += fmt::format("Not measured: {}\n", fmt::join(result.not_measured, ", "));
  if (!failures.empty()) return text + failures;
  return text + fmt::format("{}: {} metrics agree.\n", palette(Tone::Good, "Passed"), worst.size());
}

std::string junit_xml(const CheckResult& result) {
  const std::vector<Finding> worst = worst_by_metric(result.findings);
  const auto failures = std::ranges::count(worst, false, &Finding::passed);
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"shardplan check\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
      worst.size() + result.not_measured.size(), failures, result.not_measured.size());
  for (const Finding& finding : worst) {
    text += fmt::format("  <testcase classname=\"shardplan.check\" name=\"{}\"",
                        xml_escaped(name_of(finding)));
    text += finding.passed() ? "/>\n"
                             : fmt::format("><failure message=\"{}\"/></testcase>\n",
                                           xml_escaped(finding_text(finding)));
  }
  for (const std::string& metric : result.not_measured)
    text += fmt::format(
        "  <testcase classname=\"shardplan.check\" name=\"{}\"><skipped message=\"not measured\"/>"
        "</testcase>\n",
        xml_escaped(metric));
  return text + "</testsuite>\n";
}

}  // namespace shardplan
