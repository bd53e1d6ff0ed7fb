#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "plans/error.h"
#include "tools/calibration.h"
#include "tools/commands.h"
#include "tools/csv_table.h"
#include "tools/progress_bar.h"
#include "tools/published_job.h"
#include "tools/score.h"
#include "tools/score_text.h"
#include "tools/table.h"

namespace shardplan {
namespace {

using Trainings = std::vector<const MeasuredTraining*>;

/// The trainings of a table that state their speed and become plans.
std::vector<MeasuredTraining> planned(const std::vector<CsvRow>& rows, const Hardware& hardware) {
  const std::vector<Framework> frameworks = read_frameworks(data_folder());
  std::vector<MeasuredTraining> trainings;
  ProgressBar bar("Planning", static_cast<std::int64_t>(rows.size()), 1.0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    bar.show(static_cast<std::int64_t>(r), "rows");
    const double speed = stated_or_derived(rows[r], "tokens_per_s_per_gpu");
    if (speed <= 0) continue;
    try {
      PublishedPlan published = published_plan(rows[r], frameworks, hardware);
      if (published.leaves_open("activation checkpointing")) continue;
      trainings.push_back(
          {cell_of(rows[r], "id"), cell_of(rows[r], "family"), std::move(published.plan), speed});
    } catch (const NotExpressed&) {  // `score` lists these
    }
  }
  return trainings;
}

Trainings those(const std::vector<MeasuredTraining>& trainings,
                const std::function<bool(const MeasuredTraining&)>& wanted) {
  Trainings result;
  for (const MeasuredTraining& training : trainings)
    if (wanted(training)) result.push_back(&training);
  return result;
}

/// How the constants and the errors come out when each family in turn is left out of the fit.
struct LeftOut {
  std::vector<double> errors;  // of each family, by the fit without it
  Constants least;
  Constants most;
};

LeftOut leave_families_out(const std::vector<MeasuredTraining>& trainings, const Hardware& hardware,
                           const Constants& fitted) {
  std::set<std::string> families;
  for (const MeasuredTraining& training : trainings)
    families.insert(training.family);
  LeftOut left{{}, fitted, fitted};
  ProgressBar bar("Leaving out", static_cast<std::int64_t>(families.size()), 1.0);
  std::int64_t done = 0;
  for (const std::string& family : families) {
    bar.show(done++, family);
    const Trainings others = those(
        trainings, [&](const MeasuredTraining& training) { return training.family != family; });
    const Trainings out = those(
        trainings, [&](const MeasuredTraining& training) { return training.family == family; });
    if (others.empty()) continue;
    const Constants values = fit_constants(others, hardware, fitted, [] {}).values;
    for (std::size_t c = 0; c < values.size(); ++c) {
      left.least[c] = std::min(left.least[c], values[c]);
      left.most[c] = std::max(left.most[c], values[c]);
    }
    std::ranges::copy(errors_with(out, hardware, values), std::back_inserter(left.errors));
  }
  return left;
}

void print_constants(const Fit& fit, const std::optional<LeftOut>& left) {
  Table table({{"constant", Align::Left},
               {"believed"},
               {"fitted"},
               {left ? "families left out" : ""},
               {"", Align::Left}});
  for (std::size_t c = 0; c < fit.values.size(); ++c)
    table.add({std::string(free_constants()[c].name),
               fmt::format("{:.3f}", free_constants()[c].prior),
               fmt::format("{:.3f}", fit.values[c]),
               left ? fmt::format("{:.3f} to {:.3f}", left->least[c], left->most[c]) : "",
               fit.identified[c] ? "" : "the figures do not tell"});
  fmt::print("{}\n", table.text());
}

}  // namespace

int calibrate_command(const CalibrateOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  const std::vector<MeasuredTraining> trainings = planned(read_csv(options.table), hardware);
  const Trainings all = those(trainings, [](const MeasuredTraining&) { return true; });
  if (all.empty())
    throw InputError(
        fmt::format("{}: no row is a training that can be planned and states its "
                    "speed; `shardplan score {}` says why",
                    options.table, options.table));
  Fit fit;
  {
    ProgressBar bar("Fitting", 30, 1.0);
    std::int64_t turn = 0;
    fit = fit_constants(all, hardware, {},
                        [&] { bar.show(std::min<std::int64_t>(turn++, 29), "turns"); });
  }
  std::optional<LeftOut> left;
  if (options.leave_out) left = leave_families_out(trainings, hardware, fit.values);
  Constants believed;
  for (const FreeConstant& constant : free_constants())
    believed.push_back(constant.prior);
  print_constants(fit, left);
  std::vector<NamedSummary> fits{{"as believed", summary_of(errors_with(all, hardware, believed))},
                                 {"fitted", summary_of(errors_with(all, hardware, fit.values))}};
  if (left) fits.push_back({"families left out", summary_of(left->errors)});
  fmt::print("{}", errors_text("error of tokens/s", fits));
  return kYes;
}

}  // namespace shardplan
