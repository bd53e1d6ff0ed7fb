#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "plans/document.h"
#include "plans/error.h"
#include "tools/answers_json.h"
#include "tools/commands.h"
#include "tools/comparison.h"
#include "tools/comparison_text.h"
#include "tools/documents.h"
#include "tools/progress_bar.h"

namespace shardplan {
namespace {

constexpr std::array kDefault{Strategy::Ddp, Strategy::ShardGradOp, Strategy::FullShard};
constexpr std::array kPossible{Strategy::Ddp, Strategy::NoShard, Strategy::ShardGradOp,
                               Strategy::FullShard};

Strategy possible_strategy(std::string_view flag, const std::string& name) {
  Node place;
  place.where = fmt::format("command line: compare: {}", flag);
  const Strategy strategy = located(place, [&] { return strategy_from(name); });
  if (std::ranges::find(kPossible, strategy) == kPossible.end())
    fail(place, fmt::format("{} is not supported yet; supported: DDP, NO_SHARD, SHARD_GRAD_OP, "
                            "FULL_SHARD",
                            name));
  return strategy;
}

std::vector<Strategy> strategies_of(const CompareOptions& options) {
  if (options.strategies.empty()) return {kDefault.begin(), kDefault.end()};
  std::vector<Strategy> strategies;
  for (const std::string& name : options.strategies) {
    const Strategy strategy = possible_strategy("--strategies", name);
    if (std::ranges::find(strategies, strategy) == strategies.end()) strategies.push_back(strategy);
  }
  return strategies;
}

std::optional<double> tokens_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  double tokens = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, tokens);
  if (error != std::errc() || stop != end || !(tokens >= 1) || !std::isfinite(tokens))
    throw InputError(fmt::format(
        "command line: compare: --tokens {}: expected a number of tokens such as 15e12", text));
  return tokens;
}

bool answer(const std::vector<ComparedStrategy>& rows, std::optional<Strategy> required) {
  return std::ranges::any_of(rows, [&](const ComparedStrategy& row) {
    return row.fits() && (!required || row.strategy == *required);
  });
}

}  // namespace

int compare_command(const CompareOptions& options) {
  std::vector<Strategy> strategies = strategies_of(options);
  std::optional<Strategy> required;
  if (!options.require.empty()) {
    required = possible_strategy("--require", options.require);
    if (std::ranges::find(strategies, *required) == strategies.end())
      strategies.push_back(*required);
  }
  const std::optional<double> tokens = tokens_of(options.tokens);
  const Hardware hardware = Hardware::read(data_folder());
  const Job job = load_job(options.job, hardware);

  std::vector<ComparedStrategy> rows;
  {
    ProgressBar bar("Comparing", static_cast<std::int64_t>(strategies.size()), 1.0);
    std::int64_t done = 0;
    rows = compare_strategies(job, strategies, tokens, hardware,
                              [&](Strategy strategy) { bar.show(done++, to_string(strategy)); });
  }
  if (options.json) {
    fmt::print("{}\n", comparison_json(rows));
  } else {
    fmt::print("{}{}\n{}\n", assumptions_text(rows.front().plan),
               comparison_text(rows, tokens, Palette()), advice(rows, hardware));
  }
  return answer(rows, required) ? kYes : kNo;
}

}  // namespace shardplan
