#include "tools/search_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/prediction_text.h"
#include "tools/table.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

constexpr double kBillion = 1e9;

std::string gpus_text(const Job& job) {
  return fmt::format("{} x {}", job.world_size(), job.cluster.gpu.name);
}

std::string price_of(const Outcome& outcome) {
  return outcome.per_token_cost ? price_text(*outcome.per_token_cost * kBillion) : "-";
}

std::string best_table(const std::vector<Confirmed>& best, const SearchQuestion& question) {
  Table table({{"GPUs", Align::Left},
               {"strategy", Align::Left},
               {"micro-batch"},
               {"micro-steps"},
               {"checkpointing", Align::Left},
               {"memory"},
               {"rate"},
               {"per billion tokens"},
               {"worse by"}});
  const double least = best.front().outcome.value(question.objective);
  for (const Confirmed& one : best) {
    const Job& job = one.candidate->job;
    const double worse = one.outcome.value(question.objective) / least - 1;
    table.add({gpus_text(job), std::string(to_string(job.strategy.sharding)),
               fmt::format("{}", job.training.micro_batch),
               fmt::format("{}", job.training.gradient_accumulation.steps),
               checkpointing_text(job.training.activation_checkpointing),
               format_bytes(one.outcome.device_bytes), rate_text(1 / one.outcome.per_token_s),
               price_of(one.outcome),
               &one == &best.front() ? "" : fmt::format("{:.1f} %", 100 * worse)});
  }
  return table.text();
}

std::string_view superlative(Objective objective) {
  switch (objective) {
    case Objective::Cost: return "cheapest";
    case Objective::Time: return "fastest";
    case Objective::Memory: return "smallest";
  }
  return "";
}

std::string counts_text(const SearchResult& result) {
  return fmt::format(
      "{} candidates: {} do not fit, {} cannot be among the best by their matrix products or "
      "memory "
      "alone, {} by plans of few blocks; {} were planned in full.\n",
      result.considered, result.too_large, result.hopeless, result.estimated, result.confirmed);
}

std::string totals_text(const Confirmed& best, const SearchLimits& limits) {
  if (!limits.tokens) return "";
  const Outcome& outcome = best.outcome;
  return fmt::format(
      "In all for {} tokens: {}{}.\n", format_count(*limits.tokens),
      duration_text(outcome.per_token_s * *limits.tokens),
      outcome.per_token_cost ? ", " + price_text(*outcome.per_token_cost * *limits.tokens) : "");
}

}  // namespace

std::string flags_of(const Job& job) {
  std::string flags =
      fmt::format("--gpu {} --gpus {} --sharding {} --micro-batch {}", job.cluster.gpu.key,
                  job.world_size(), to_string(job.strategy.sharding), job.training.micro_batch);
  if (job.training.gradient_accumulation.steps > 1)
    flags += fmt::format(" --set training.gradient_accumulation.steps={}",
                         job.training.gradient_accumulation.steps);
  const ActivationCheckpointing& checkpointing = job.training.activation_checkpointing;
  using Kind = ActivationCheckpointing::Kind;
  if (checkpointing.kind == Kind::Full) flags += " --set training.activation_checkpointing=full";
  if (checkpointing.kind == Kind::Every)
    flags += fmt::format(" --set training.activation_checkpointing.every={}", checkpointing.every);
  if (checkpointing.kind == Kind::Selective) {
    std::string names;
    for (const OperatorKind kind : checkpointing.operators)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", spec(kind).name);
    flags += fmt::format(" --set 'training.activation_checkpointing.selective=[{}]'", names);
  }
  return flags;
}

std::string search_text(const SearchResult& result, const SearchQuestion& question) {
  if (result.best.empty()) return counts_text(result) + "None of them fits within the limits.\n";
  const Job& winner = result.best.front().candidate->job;
  std::string text = counts_text(result) + "\n" + best_table(result.best, question) + "\n";
  text += fmt::format("The {} is {} with {}: {}.\n", superlative(question.objective),
                      to_string(winner.strategy.sharding), gpus_text(winner), flags_of(winner));
  return text + totals_text(result.best.front(), question.limits);
}

}  // namespace shardplan
