#include "planner/passes/layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "planner/passes/whole_parameters.h"

namespace shardplan {
namespace {

constexpr Bytes kAlignment = 16;  // FSDP1's _ALIGNMENT

/// Real elements (padding at the end excluded) in the part of a slice that `rank` of the shard
/// group owns.
std::int64_t valid_elems(const UnitSlice& slice, std::int64_t part, std::int64_t rank) {
  return std::clamp<std::int64_t>(slice.valid - rank * part, 0, part);
}

constexpr std::int64_t kMostClassesOfOneRank = 8;

/// Where DeepSpeed's stages 1 and 2 keep gradients, every rank keeps others. All but the first and
/// the last are one class in large worlds, with the most of each buffer.
void add_borders_of_ranks(const Plan& plan, std::set<std::int64_t>& borders) {
  const std::int64_t group = plan.mesh.shard;
  if (!keeps_flat_gradients(plan.job.strategy) || group == 1) return;
  borders.insert({1, group - 1});
  for (std::int64_t rank = 2; group <= kMostClassesOfOneRank && rank < group - 1; ++rank)
    borders.insert(rank);
}

/// Ranks that FSDP1 with use_orig_params makes differ in which parameters they have parts of: the
/// first and the last stand for themselves, the second for all others; and of a unit that is
/// trained in part, those where some trained parameter begins or ends.
void add_borders_of_parameters(const Plan& plan, const ModelGraph& graph,
                               const std::vector<ParameterGroup>& groups,
                               std::set<std::int64_t>& borders) {
  const std::int64_t group = plan.mesh.shard;
  if (plan.job.strategy.engine != Engine::Fsdp1 || !plan.job.strategy.use_orig_params || group == 1)
    return;
  borders.insert({1, group - 1});
  for (std::size_t u = 0; u < groups.size(); ++u) {
    const auto trains = [&](int index) { return graph.parameters[index].trains(); };
    if (std::ranges::all_of(groups[u].parameters, trains)) continue;
    const Unit& unit = plan.units[u];
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      if (!trains(groups[u].parameters[p])) continue;
      const UnitParameter& parameter = unit.parameters[p];
      for (const std::int64_t at : {parameter.at, parameter.at + parameter.elems - 1}) {
        const std::int64_t rank = at / unit.shard_elems;
        borders.insert({rank, std::min(rank + 1, group)});
      }
    }
  }
}

/// Ranks split at `borders`, and where some slice's part stops being full or starts being empty.
std::vector<RankClass> rank_classes(const Plan& plan, std::set<std::int64_t> borders) {
  const std::int64_t group = plan.mesh.shard;
  borders.insert({0, group});
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

/// How parameters become slices.
struct LayoutRules {
  bool per_parameter = false;
  bool sorted = true;               // what is alike stands together, in slices of its own
  bool by_rows = true;              // what is cut by itself
  std::int64_t aligned_elems = 1;   // parameters begin at multiples of it
  std::int64_t aligned_shards = 1;  // and shards end
};

/// FSDP2 cuts every parameter by itself, by rows, DeepSpeed's stage 3 by elements; its others
/// flatten all parameters, to an even number per rank. FSDP1 flattens a unit in its modules' order;
/// with use_orig_params parameters are aligned, in the dtype that they are gathered in.
LayoutRules rules_of(const Job& job) {
  const StrategyJob& strategy = job.strategy;
  const bool fsdp1 = strategy.engine == Engine::Fsdp1;
  LayoutRules rules;
  rules.per_parameter = strategy.engine == Engine::Fsdp2 || strategy.layout == Layout::PerParameter;
  rules.sorted = !fsdp1;
  if (strategy.engine == Engine::DeepSpeed) {
    rules.per_parameter = strategy.sharding == Strategy::Zero3;
    rules.by_rows = false;
    rules.sorted = rules.per_parameter;
    rules.aligned_shards = rules.per_parameter ? 1 : kNcclStartAlignment;
    return rules;
  }
  if (rules.per_parameter || (fsdp1 && !strategy.use_orig_params)) return rules;
  const Dtype dtype = fsdp1 ? parameter_dtype(job) : Dtype::Float32;
  rules.aligned_elems = kAlignment / size_of(dtype);
  return rules;
}

/// Lays the parameters of one unit out.
class UnitLayout {
 public:
  UnitLayout(const Plan& plan, const ModelGraph& graph, const std::string& name)
      : graph_(graph),
        rules_(rules_of(plan.job)),
        matrices_only_(plan.job.training.optimizer.decay == OptimizerJob::Decay::Matrices),
        group_(plan.mesh.shard) {
    unit_.name = name;
  }

  /// What is trained first, what decays first among it.
  void sort(std::vector<int>& parameters) const {
    if (!rules_.sorted) return;
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
    if (slice == nullptr || rules_.per_parameter ||
        (rules_.sorted &&
         (slice->trainable != parameter.trains() || slice->decays != decays(parameter)))) {
      close_slice();
      const std::int64_t at = slice == nullptr ? 0 : slice->at + slice->elems;
      unit_.slices.push_back(
          {.at = at, .trainable = parameter.trains(), .decays = decays(parameter)});
      slice = &unit_.slices.back();
    }
    const std::int64_t elems = parameter.elements();
    const std::int64_t at =
        slice->at + (rules_.per_parameter ? 0 : round_up(slice->valid, rules_.aligned_elems));
    unit_.parameters.push_back({parameter.name, parameter.shape, parameter.initializer, at, elems});
    slice->valid = at + elems - slice->at;
    slice->trainable = slice->trainable || parameter.trains();  // a flat gradient is one
  }

  /// Pads the last slice.
  void close_slice() {
    if (unit_.slices.empty()) return;
    UnitSlice& slice = unit_.slices.back();
    if (rules_.per_parameter && rules_.by_rows) {
      const auto& shape = unit_.parameters.back().shape;
      const std::int64_t rows = shape.empty() ? 1 : shape.front();
      slice.elems = ceil_div(rows, group_) * (slice.valid / rows) * group_;
    } else {
      const std::int64_t aligned =
          rules_.sorted ? round_up(slice.valid, rules_.aligned_elems) : slice.valid;
      slice.elems = round_up(aligned, group_ * rules_.aligned_shards);
    }
  }

  const ModelGraph& graph_;
  const LayoutRules rules_;
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
  std::set<std::int64_t> borders;
  add_borders_of_parameters(plan, graph, groups, borders);
  add_borders_of_ranks(plan, borders);
  plan.classes = rank_classes(plan, std::move(borders));
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
