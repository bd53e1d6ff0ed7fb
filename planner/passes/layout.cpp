#include "planner/passes/layout.h"

#include <algorithm>
#include <set>
#include <utility>

namespace shardplan {
namespace {

constexpr std::int64_t kAlignedElems = 4;  // 16 bytes of float32: FSDP1's _ALIGNMENT

/// Real elements (padding at the end excluded) in the part of a slice that `rank` of the shard
/// group owns.
std::int64_t valid_elems(const UnitSlice& slice, std::int64_t part, std::int64_t rank) {
  return std::clamp<std::int64_t>(slice.valid - rank * part, 0, part);
}

/// Ranks split where some slice's part stops being full or starts being empty.
std::vector<RankClass> rank_classes(const Plan& plan) {
  const std::int64_t group = plan.mesh.shard;
  std::set<std::int64_t> borders{0, group};
  for (const Unit& unit : plan.units)
    for (const UnitSlice& slice : unit.slices) {
      const std::int64_t part = slice.elems / group;
      const std::int64_t full = slice.valid / part;  // ranks with a full part
      for (const std::int64_t border : {full, ceil_div(slice.valid, part)})
        if (border < group) borders.insert(border);
    }
  std::vector<RankClass> classes;
  for (auto border = borders.begin(); std::next(border) != borders.end(); ++border) {
    RankClass ranks{.first = *border, .last = *std::next(border) - 1, .valid = {}};
    for (const Unit& unit : plan.units) {
      std::int64_t valid = 0;
      for (const UnitSlice& slice : unit.slices)
        valid += valid_elems(slice, slice.elems / group, ranks.first);
      ranks.valid.push_back(valid);
    }
    classes.push_back(std::move(ranks));
  }
  // Without sharding every rank holds the whole: one class for all replicas.
  classes.back().last = plan.ranks_in_classes() - 1;
  return classes;
}

/// Lays the parameters of one unit out.
class UnitLayout {
 public:
  UnitLayout(const Plan& plan, const ModelGraph& graph, const std::string& name)
      : graph_(graph),
        per_parameter_(plan.job.strategy.layout == Layout::PerParameter),
        matrices_only_(plan.job.training.optimizer.decay == OptimizerJob::Decay::Matrices),
        group_(plan.mesh.shard) {
    unit_.name = name;
  }

  /// What is trained first, what decays first among it.
  void sort(std::vector<int>& parameters) const {
    std::ranges::stable_sort(parameters, {}, [&](int index) {
      return std::pair(!graph_.parameters[index].trains(), !decays(graph_.parameters[index]));
    });
  }

  Unit run(const std::vector<int>& sorted) {
    for (const int index : sorted)
      add(graph_.parameters[index]);
    close_slice();
    for (const UnitSlice& slice : unit_.slices)
      unit_.elems += slice.valid;
    unit_.padded_elems = unit_.slices.back().at + unit_.slices.back().elems;
    unit_.shard_elems = unit_.padded_elems / group_;
    return std::move(unit_);
  }

 private:
  bool decays(const Parameter& parameter) const {
    return !matrices_only_ || parameter.shape.size() > 1;
  }

  void add(const Parameter& parameter) {
    UnitSlice* slice = unit_.slices.empty() ? nullptr : &unit_.slices.back();
    if (slice == nullptr || per_parameter_ || slice->trainable != parameter.trains() ||
        slice->decays != decays(parameter)) {
      close_slice();
      const std::int64_t at = slice == nullptr ? 0 : slice->at + slice->elems;
      unit_.slices.push_back(
          {.at = at, .trainable = parameter.trains(), .decays = decays(parameter)});
      slice = &unit_.slices.back();
    }
    const std::int64_t elems = parameter.elements();
    const std::int64_t at =
        slice->at + (per_parameter_ ? 0 : round_up(slice->valid, kAlignedElems));
    unit_.parameters.push_back({parameter.name, parameter.shape, parameter.initializer, at, elems});
    slice->valid = at + elems - slice->at;
  }

  /// Pads the last slice.
  void close_slice() {
    if (unit_.slices.empty()) return;
    UnitSlice& slice = unit_.slices.back();
    if (per_parameter_) {
      const auto& shape = unit_.parameters.back().shape;
      const std::int64_t rows = shape.empty() ? 1 : shape.front();
      slice.elems = ceil_div(rows, group_) * (slice.valid / rows) * group_;
    } else {
      slice.elems = round_up(round_up(slice.valid, kAlignedElems), group_);
    }
  }

  const ModelGraph& graph_;
  const bool per_parameter_;
  const bool matrices_only_;
  const std::int64_t group_;
  Unit unit_;
};

}  // namespace

std::vector<ParameterPlace> lay_out(Plan& plan, const ModelGraph& graph,
                                    const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterPlace> places(graph.parameters.size());
  for (const ParameterGroup& group : groups) {
    UnitLayout layout(plan, graph, group.name);
    std::vector<int> parameters = group.parameters;
    layout.sort(parameters);
    const Unit unit = layout.run(parameters);
    for (std::size_t p = 0; p < parameters.size(); ++p)
      places[parameters[p]] = {static_cast<int>(plan.units.size()), unit.parameters[p].at,
                               unit.parameters[p].elems};
    plan.units.push_back(unit);
  }
  plan.classes = rank_classes(plan);
  return places;
}

std::vector<std::pair<std::int64_t, std::int64_t>> padding_of(const Unit& unit,
                                                              std::int64_t elems) {
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
  std::int64_t end = 0;
  for (const UnitParameter& parameter : unit.parameters) {
    if (parameter.at >= elems) break;
    if (parameter.at > end) gaps.emplace_back(end, parameter.at - end);
    end = parameter.at + parameter.elems;
  }
  if (elems > end) gaps.emplace_back(end, elems - end);
  return gaps;
}

}  // namespace shardplan
