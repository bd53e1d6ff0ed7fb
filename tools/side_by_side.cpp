#include "tools/side_by_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "plans/error.h"
#include "tools/table.h"

namespace shardplan {
namespace {

void add(std::optional<Seconds>& sum, Seconds seconds) { sum = sum.value_or(0) + seconds; }

/// The row of every instruction, and the rows.
struct Rows {
  explicit Rows(const Plan& whole) : plan(whole) {
    for (const Instruction& instruction : plan.instructions) {
      const std::string unit = instruction.unit < 0 ? "" : plan.units[instruction.unit].name;
      const std::string phase(to_string(instruction.phase));
      auto row = std::ranges::find_if(rows, [&](const UnitInPhase& other) {
        return other.unit == unit && other.phase == phase;
      });
      if (row == rows.end() && is_of_a_step(instruction.phase))
        row = rows.insert(rows.end(), {.phase = phase, .unit = unit});
      of_instruction.push_back(row - rows.begin());
    }
  }

  SidePair* pair_of(InstructionId id) {
    const Instruction& instruction = plan.instructions[id];
    if (!is_of_a_step(instruction.phase)) return nullptr;
    UnitInPhase& row = rows[of_instruction[id]];
    return is_collective(instruction.operation) ? &row.communication : &row.compute;
  }

  const Plan& plan;
  std::vector<UnitInPhase> rows;
  std::vector<std::ptrdiff_t> of_instruction;
};

std::string seconds_text(const std::optional<Seconds>& seconds) {
  return seconds ? format_seconds(*seconds) : "-";
}

nlohmann::ordered_json json_of(const SidePair& pair) {
  const auto or_null = [](const std::optional<Seconds>& seconds) {
    return seconds ? nlohmann::ordered_json(*seconds) : nlohmann::ordered_json();
  };
  return {{"predicted_s", or_null(pair.predicted)}, {"measured_s", or_null(pair.measured)}};
}

}  // namespace

std::vector<UnitInPhase> side_by_side(const Plan& plan, const Report& predicted,
                                      const Report& measured) {
  Rows rows(plan);
  for (const TimelineEntry& entry : predicted.timeline)
    if (SidePair* pair = rows.pair_of(entry.id)) add(pair->predicted, entry.end_s - entry.begin_s);

  std::unordered_map<std::string, InstructionId> ids;
  for (std::size_t id = 0; id < plan.instructions.size(); ++id)
    ids.emplace(plan.instructions[id].name, static_cast<InstructionId>(id));
  for (const InstructionTime& one : measured.instructions) {
    const auto id = ids.find(one.name);
    if (id == ids.end())
      throw InputError(
          fmt::format("the measurement has an instruction '{}', the plan has none", one.name));
    SidePair* pair = rows.pair_of(id->second);
    if (pair == nullptr) continue;
    add(pair->measured, one.seconds);
    rows.rows[rows.of_instruction[id->second]].bytes += one.bytes;
  }
  return std::move(rows.rows);
}

std::string side_by_side_text(const std::vector<UnitInPhase>& rows) {
  Table table({{"phase", Align::Left},
               {"unit", Align::Left},
               {"compute predicted"},
               {"measured"},
               {"communication predicted"},
               {"measured"},
               {"operands"}});
  UnitInPhase sum{.phase = "step", .unit = "sum of all"};
  const auto add_pair = [](SidePair& to, const SidePair& from) {
    if (from.predicted) add(to.predicted, *from.predicted);
    if (from.measured) add(to.measured, *from.measured);
  };
  const auto add_row = [&](const UnitInPhase& row) {
    table.add({row.phase, row.unit.empty() ? "-" : row.unit, seconds_text(row.compute.predicted),
               seconds_text(row.compute.measured), seconds_text(row.communication.predicted),
               seconds_text(row.communication.measured), format_bytes(row.bytes)});
  };
  for (const UnitInPhase& row : rows) {
    add_row(row);
    add_pair(sum.compute, row.compute);
    add_pair(sum.communication, row.communication);
    sum.bytes += row.bytes;
  }
  add_row(sum);
  return table.text();
}

std::string side_by_side_json(const std::vector<UnitInPhase>& rows) {
  nlohmann::ordered_json json{{"schema", "shardplan/report/1"},
                              {"rows", nlohmann::ordered_json::array()}};
  for (const UnitInPhase& row : rows)
    json["rows"].push_back({{"phase", row.phase},
                            {"unit", row.unit},
                            {"compute", json_of(row.compute)},
                            {"communication", json_of(row.communication)},
                            {"bytes", row.bytes}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace shardplan
