#include "planner/passes/gathers.h"

#include <algorithm>
#include <map>

namespace shardplan {
namespace {

std::vector<Gather> uses_of_units(const Plan& plan, const Tape& tape,
                                  const std::vector<ParameterPlace>& places) {
  std::map<std::pair<int, Phase>, Gather> uses;
  int launch = 0;
  for (const auto* list : {&tape.forward, &tape.backward}) {
    const Phase phase = list == &tape.forward ? Phase::Forward : Phase::Backward;
    for (const TapeLaunch& entry : *list) {
      for (const TapeOperand& read : entry.reads) {
        if (read.kind != TapeOperand::Kind::Parameter) continue;
        const int unit = places[read.index].unit;
        const Phase kept = keeps_parameters(plan, unit) ? Phase::Forward : phase;
        auto [use, fresh] = uses.try_emplace({unit, kept}, Gather{.unit = unit, .phase = kept});
        if (fresh) use->second.first_use = launch;
        use->second.last_use = launch;
      }
      ++launch;
    }
  }
  std::vector<Gather> gathers;
  for (const auto& [key, gather] : uses)
    gathers.push_back(gather);
  std::ranges::sort(gathers, {}, &Gather::first_use);
  return gathers;
}

int units_ahead(const StrategyJob& strategy, Phase phase) {
  if (phase == Phase::Forward) return std::max(1, strategy.forward_prefetch);
  return strategy.backward_prefetch == BackwardPrefetch::Pre ? 1 : 0;
}

}  // namespace

bool keeps_parameters(const Plan& plan, int unit) {
  const StrategyJob& strategy = plan.job.strategy;
  if (strategy.reshard_after_forward) return !strategy.reshard_after_forward->reshard;
  const bool reshards = strategy.sharding == Strategy::FullShard ||
                        strategy.sharding == Strategy::HybridShard ||
                        strategy.sharding == Strategy::Zero3;
  return !reshards || plan.units[unit].name == "root";
}

std::vector<Gather> plan_gathers(const Plan& plan, const Tape& tape,
                                 const std::vector<ParameterPlace>& places) {
  const StrategyJob& strategy = plan.job.strategy;
  std::vector<Gather> gathers = uses_of_units(plan, tape, places);
  std::vector<int> released;  // the last uses of gathers that end before backward does, in order
  for (int i = 0; i < static_cast<int>(gathers.size()); ++i) {
    Gather& gather = gathers[i];
    const int ahead = units_ahead(strategy, gather.phase);
    gather.issue = i < ahead ? 0 : gathers[i - ahead].first_use;
    if (i > 0) gather.issue = std::max(gather.issue, gathers[i - 1].issue);
    const int slots = static_cast<int>(released.size()) - (ahead + 1);
    if (strategy.limit_all_gathers && slots >= 0 && released[slots] < gather.first_use)
      gather.throttle = released[slots];
    for (int j = 0; j < i; ++j)
      if (gathers[j].unit == gather.unit)
        gather.throttle = std::max(gather.throttle, gathers[j].last_use);
    gather.issue = std::max(gather.issue, gather.throttle + 1);
    if (plan.units[gather.unit].name != "root") released.push_back(gather.last_use);
  }
  return gathers;
}

}  // namespace shardplan
