#include "tools/strategy_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plans/document.h"
#include "plans/error.h"

namespace shardplan {
namespace {

constexpr std::array kDefault{Strategy::Ddp, Strategy::ShardGradOp, Strategy::FullShard};
constexpr std::array kPossible{Strategy::Ddp, Strategy::NoShard, Strategy::ShardGradOp,
                               Strategy::FullShard};

}  // namespace

Strategy strategy_named(const std::string& where, const std::string& name) {
  const Strategy strategy = located(where, [&] { return strategy_from(name); });
  if (std::ranges::find(kPossible, strategy) == kPossible.end())
    throw InputError(fmt::format(
        "{}: {} is not supported yet; supported: DDP, NO_SHARD, SHARD_GRAD_OP, FULL_SHARD", where,
        name));
  return strategy;
}

std::vector<Strategy> strategies_named(std::string_view command,
                                       const std::vector<std::string>& names) {
  if (names.empty()) return {kDefault.begin(), kDefault.end()};
  std::vector<Strategy> strategies;
  for (const std::string& name : names) {
    const Strategy strategy = strategy_named(fmt::format("{}: --strategies", command), name);
    if (std::ranges::find(strategies, strategy) == strategies.end()) strategies.push_back(strategy);
  }
  return strategies;
}

}  // namespace shardplan
