#include "planner/passes/layout.h"

#include <algorithm>
#include <set>

namespace shardplan {
namespace {

constexpr std::int64_t kAlignedElems = 4;  // 16 bytes of float32: FSDP1's _ALIGNMENT

/// Real elements (tail padding excluded) in the shard of `rank` of the shard group.
std::int64_t valid_elems(const Unit& unit, std::int64_t rank) {
  return std::clamp<std::int64_t>(unit.elems - rank * unit.shard_elems, 0, unit.shard_elems);
}

/// Ranks split where some unit's shard stops being full or starts being empty.
std::vector<RankClass> rank_classes(const std::vector<Unit>& units, const Mesh& mesh) {
  std::set<std::int64_t> borders{0, mesh.shard};
  for (const Unit& unit : units) {
    const std::int64_t full = unit.elems / unit.shard_elems;  // ranks with a full shard
    for (const std::int64_t border : {full, full + (unit.elems % unit.shard_elems != 0 ? 1 : 0)})
      if (border < mesh.shard) borders.insert(border);
  }
  std::vector<RankClass> classes;
  for (auto border = borders.begin(); std::next(border) != borders.end(); ++border) {
    RankClass ranks{.first = *border, .last = *std::next(border) - 1, .valid = {}};
    for (const Unit& unit : units)
      ranks.valid.push_back(valid_elems(unit, ranks.first));
    classes.push_back(std::move(ranks));
  }
  // Without sharding every rank holds the whole: one class for all replicas.
  if (mesh.shard == 1) classes.front().last = mesh.replicate - 1;
  return classes;
}

}  // namespace

std::vector<ParameterPlace> lay_out(Plan& plan, const ModelGraph& graph,
                                    const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterPlace> places(graph.parameters.size());
  for (const ParameterGroup& group : groups) {
    Unit unit{.name = group.name, .parameters = {}};
    for (const int index : group.parameters) {
      const Parameter& parameter = graph.parameters[index];
      const std::int64_t at = round_up(unit.elems, kAlignedElems);
      const std::int64_t elems = parameter.elements();
      unit.parameters.push_back(
          {parameter.name, parameter.shape, parameter.initializer, at, elems});
      places[index] = {static_cast<int>(plan.units.size()), at, elems};
      unit.elems = at + elems;
    }
    unit.padded_elems = round_up(round_up(unit.elems, kAlignedElems), plan.mesh.shard);
    unit.shard_elems = unit.padded_elems / plan.mesh.shard;
    plan.units.push_back(std::move(unit));
  }
  plan.classes = rank_classes(plan.units, plan.mesh);
  return places;
}

std::vector<std::pair<std::int64_t, std::int64_t>> padding_of(const Unit& unit) {
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
  std::int64_t end = 0;
  for (const UnitParameter& parameter : unit.parameters) {
    if (parameter.at > end) gaps.emplace_back(end, parameter.at - end);
    end = parameter.at + parameter.elems;
  }
  if (unit.padded_elems > end) gaps.emplace_back(end, unit.padded_elems - end);
  return gaps;
}

}  // namespace shardplan
