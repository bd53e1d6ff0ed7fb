#include "tools/strategy_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "plans/document.h"
#include "plans/error.h"

namespace shardplan {

Strategy strategy_named(const std::string& where, const std::string& name) {
  return located(where, [&] { return strategy_from(name); });
}

std::vector<Strategy> strategies_named(std::string_view command,
                                       const std::vector<std::string>& names) {
  std::vector<Strategy> strategies;
  for (const std::string& name : names) {
    const Strategy strategy = strategy_named(fmt::format("{}: --strategies", command), name);
    if (std::ranges::find(strategies, strategy) == strategies.end()) strategies.push_back(strategy);
  }
  return strategies;
}

std::vector<Strategy> usual_strategies(const Job& job, bool several_nodes) {
  if (job.strategy.engine == Engine::DeepSpeed)
    return {Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Zero3};
  std::vector<Strategy> strategies{Strategy::Ddp, Strategy::ShardGradOp, Strategy::FullShard};
  if (several_nodes) strategies.push_back(Strategy::HybridShard);
  return strategies;
}

}  // namespace shardplan
