#include "tools/time_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tools/table.h"

namespace shardplan {
namespace {

constexpr int kColumns = 64;  // of the picture of a step

struct StreamUse {
  std::int64_t instructions = 0;
  Seconds busy_s = 0;
  std::array<Seconds, kColumns> busy_by_column{};
};

/// Adds the time of an entry to the columns that it covers.
void add(StreamUse& use, const TimelineEntry& entry, Seconds column_s) {
  ++use.instructions;
  use.busy_s += entry.end_s - entry.begin_s;
  const auto first = static_cast<int>(entry.begin_s / column_s);
  for (int c = first; c < kColumns && c * column_s < entry.end_s; ++c)
    use.busy_by_column[c] += std::max(
        0.0, std::min(entry.end_s, (c + 1) * column_s) - std::max(entry.begin_s, c * column_s));
}

char shade(double busy) {
  if (busy < 0.02) return ' ';
  if (busy < 0.35) return '.';
  return busy < 0.70 ? '+' : '#';
}

/// The first letter of the phase that the compute stream is in, by column.
std::string phases_row(const Plan& plan, const Report& report, Seconds column_s) {
  std::string row(kColumns, ' ');
  for (const TimelineEntry& entry : report.timeline) {
    const Instruction& instruction = plan.instructions[entry.id];
    if (instruction.stream != Stream::Compute) continue;
    const char letter = to_string(instruction.phase).front();
    for (auto c = static_cast<int>(entry.begin_s / column_s);
         c < kColumns && c * column_s < entry.end_s; ++c)
      row[c] = letter;
  }
  return row;
}

}  // namespace

std::string duration_text(Seconds seconds) {
  constexpr double kDay = 24 * kHour;
  constexpr double kYear = 365.25 * kDay;
  if (seconds < 120) return format_seconds(seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.1f} min", seconds / 60);
  if (seconds < 2 * kDay) return fmt::format("{:.1f} h", seconds / kHour);
  if (seconds < 2 * kYear) return fmt::format("{:.1f} days", seconds / kDay);
  return fmt::format("{:.1f} years", seconds / kYear);
}

std::string rate_text(double tokens_per_s) {
  return format_count(std::round(tokens_per_s)) + " tokens/s";
}

std::string bandwidth_text(double bytes_per_s) {
  return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9);
}

std::string price_text(double dollars) {
  return dollars < 1e6 ? fmt::format("${:.2f}", dollars)
                       : fmt::format("${}", format_count(dollars));
}

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string range_text(const TimeReport& time) {
  if (!time.range_share) return "";
  std::string text =
      *time.range_share < 1
          ? fmt::format("Times may be off by {:.0f} %", 100 * *time.range_share)
          : fmt::format("Times may be off by a factor of {:.0f}", 1 + *time.range_share);
  if (!time.guess.empty()) text += ": " + time.guess;
  if (!time.defaulted.empty())
    text += fmt::format("; not stated: {}", fmt::join(time.defaulted, ", "));
  return text + ".\n";
}

std::string time_text(const Plan& plan, const Report& report, const Palette& palette) {
  if (!report.time) return fmt::format("\nTime per step: not known\n");
  const TimeReport& time = *report.time;
  Table table({{"", Align::Left}, {""}, {"", Align::Left}});
  const auto of_step = [&](Seconds part) {
    return share_text(part / time.step_s) + " of the step";
  };
  table.add({"step", format_seconds(time.step_s), ""});
  table.add({"compute", format_seconds(time.compute_s), of_step(time.compute_s)});
  table.add({"communication", format_seconds(time.communication_s), of_step(time.communication_s)});
  table.add({"exposed communication", format_seconds(time.exposed_communication_s),
             of_step(time.exposed_communication_s)});
  table.add(
      {"rate", rate_text(time.tokens_per_s), rate_text(time.tokens_per_s_per_gpu) + " per GPU"});
  if (time.mfu) table.add({"MFU", share_text(*time.mfu), ""});
  if (time.total_s)
    table.add(
        {"in all", duration_text(*time.total_s), fmt::format("{} steps", plan.job.run.steps)});
  if (report.cost && report.cost->per_hour) {
    table.add({"cost", price_text(*report.cost->per_hour), "per hour"});
    if (report.cost->per_billion_tokens)
      table.add({"", price_text(*report.cost->per_billion_tokens), "per billion tokens"});
    if (report.cost->total) table.add({"", price_text(*report.cost->total), "in all"});
  }
  return fmt::format("\n{}\n{}{}", palette(Tone::Heading, "Time per step"), table.text(),
                     range_text(time));
}

std::string timeline_text(const Plan& plan, const Report& report, const Palette& palette) {
  Seconds end_s = 0;
  for (const TimelineEntry& entry : report.timeline)
    end_s = std::max(end_s, entry.end_s);
  if (end_s <= 0) return "";
  const Seconds column_s = end_s / kColumns;
  std::array<StreamUse, kStreams> streams;
  for (const TimelineEntry& entry : report.timeline)
    add(streams[static_cast<std::size_t>(plan.instructions[entry.id].stream)], entry, column_s);

  Table table(
      {{"stream", Align::Left}, {"instructions"}, {"busy"}, {"share"}, {"timeline", Align::Left}});
  table.add({"", "", "", "", phases_row(plan, report, column_s)});
  for (int s = 0; s < kStreams; ++s) {
    const StreamUse& use = streams[s];
    if (use.busy_s <= 0) continue;
    std::string row;
    for (const Seconds busy_s : use.busy_by_column)
      row += shade(busy_s / column_s);
    table.add({std::string(to_string(static_cast<Stream>(s))), fmt::format("{}", use.instructions),
               format_seconds(use.busy_s), share_text(use.busy_s / end_s), row});
  }
  const std::string title =
      fmt::format("Streams in one step of {} (a column is {}; f forward, b backward, o optimizer)",
                  format_seconds(end_s), format_seconds(column_s));
  return fmt::format("\n{}\n{}", palette(Tone::Heading, title), table.text());
}

}  // namespace shardplan
