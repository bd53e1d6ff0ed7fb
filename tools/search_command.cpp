#include <fmt/format.h>

#include <cmath>

#include "plans/error.h"
#include "tools/answers_json.h"
#include "tools/commands.h"
#include "tools/documents.h"
#include "tools/goodput_text.h"
#include "tools/job_flags.h"
#include "tools/numbers.h"
#include "tools/progress_bar.h"
#include "tools/search_text.h"
#include "tools/strategy_names.h"

namespace shardplan {
namespace {

constexpr std::string_view kCommand = "command line: search";

SearchQuestion question_of(const SearchCommandOptions& options) {
  SearchQuestion question;
  question.objective = located(fmt::format("{}: --objective", kCommand),
                               [&] { return objective_from(options.objective); });
  SearchLimits& limits = question.limits;
  const auto amount = [](std::string_view flag, const std::string& text) {
    return amount_of(fmt::format("{}: {}", kCommand, flag), text);
  };
  limits.tokens = amount("--tokens", options.tokens);
  limits.budget = amount("--budget", options.budget);
  if (const auto hours = amount("--deadline", options.deadline)) limits.deadline_s = *hours * kHour;
  if (const auto gib = amount("--memory", options.memory))
    limits.memory = std::llround(*gib * static_cast<double>(kGiB));
  if ((limits.budget || limits.deadline_s) && !limits.tokens)
    throw InputError(
        fmt::format("{}: --budget and --deadline need --tokens, what is trained on", kCommand));
  return question;
}

SearchSpace space_of(const SearchCommandOptions& options, const Job& job,
                     const Hardware& hardware) {
  std::vector<GpuOffer> offers;
  for (const std::string& text : options.available)
    offers.push_back(offer_from(text, fmt::format("{}: --available", kCommand), hardware));
  if (offers.empty()) offers.push_back(offer_of(job.cluster));
  SearchSpace space = usual_space(job, offers);
  if (!options.strategies.empty())
    space.strategies = strategies_named(kCommand, options.strategies);
  if (!options.global_batch.empty())
    space.global_batch =
        count_of(fmt::format("{}: --global-batch", kCommand), options.global_batch);
  return space;
}

void expect_prices(const SearchSpace& space, const SearchQuestion& question) {
  if (question.objective != Objective::Cost && !question.limits.budget) return;
  for (const GpuOffer& offer : space.offers)
    if (!offer.price_per_hour)
      throw InputError(fmt::format(
          "{}: the price of {} is not known; --available {}:{}:DOLLARS_PER_HOUR says it", kCommand,
          offer.gpu.name, offer.gpu.key, offer.most));
}

}  // namespace

int search_command(const SearchCommandOptions& options) {
  const SearchQuestion question = question_of(options);
  const Hardware hardware = Hardware::read(data_folder());
  const Job job = load_job(options.job, hardware);
  const SearchSpace space = space_of(options, job, hardware);
  expect_prices(space, question);
  const Candidates candidates = candidates_of(job, space);
  const Evaluator evaluator(job, space.checkpointing, hardware);
  SearchResult result;
  {
    ProgressBar bar("Searching", static_cast<std::int64_t>(candidates.all.size()), 1.0);
    result = search(candidates, question, evaluator, [&](std::size_t done) {
      bar.show(static_cast<std::int64_t>(done), "candidates");
    });
  }
  if (options.json)
    fmt::print("{}\n", search_json(result, question, evaluator, hardware));
  else
    fmt::print("{}", search_text(result, question));
  return result.best.empty() ? kNo : kYes;
}

}  // namespace shardplan
