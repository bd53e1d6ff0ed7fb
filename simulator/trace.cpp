#include "simulator/trace.h"

#include <nlohmann/json.hpp>

#include "plans/lifetimes.h"

namespace shardplan {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(Seconds seconds) { return seconds * 1e6; }

Json stream_name(Stream stream) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", 0},
          {"tid", static_cast<int>(stream)},
          {"args", {{"name", to_string(stream)}}}};
}

Json event_of(const Plan& plan, const TimelineEntry& entry) {
  const Instruction& instruction = plan.instructions[entry.id];
  Json arguments{{"kind", kind_of(instruction.operation)}};
  if (instruction.unit >= 0) arguments["unit"] = plan.units[instruction.unit].name;
  return {{"name", instruction.name},
          {"cat", to_string(instruction.phase)},
          {"ph", "X"},
          {"pid", 0},
          {"tid", static_cast<int>(instruction.stream)},
          {"ts", microseconds(entry.begin_s)},
          {"dur", microseconds(entry.end_s - entry.begin_s)},
          {"args", std::move(arguments)}};
}

/// Bytes alive when each instruction is issued, by id; 0 for those that never are.
std::vector<Bytes> live_by_instruction(const Plan& plan) {
  const std::vector<InstructionId> order = unroll(plan, 1);
  const std::vector<Bytes> live = live_bytes(plan, lifetimes(plan, order), order.size());
  std::vector<Bytes> result(plan.instructions.size(), 0);
  for (std::size_t p = 0; p < order.size(); ++p)
    result[order[p]] = live[p];
  return result;
}

}  // namespace

std::string trace_json(const Plan& plan, const Report& report) {
  Json events = Json::array();
  for (int s = 0; s < kStreams; ++s)
    events.push_back(stream_name(static_cast<Stream>(s)));
  const std::vector<Bytes> live = live_by_instruction(plan);
  for (const TimelineEntry& entry : report.timeline) {
    events.push_back(event_of(plan, entry));
    // One stream's beginnings are in order of time, so that the counter never runs backwards.
    if (plan.instructions[entry.id].stream == Stream::Compute)
      events.push_back({{"name", "memory"},
                        {"ph", "C"},
                        {"pid", 0},
                        {"ts", microseconds(entry.begin_s)},
                        {"args", {{"bytes", live[entry.id]}}}});
  }
  const Json trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shardplan
