#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "plans/error.h"
#include "tools/calibration.h"
#include "tools/commands.h"
#include "tools/csv_table.h"
#include "tools/job_flags.h"
#include "tools/machine.h"
#include "tools/output_files.h"
#include "tools/progress_bar.h"
#include "tools/published_job.h"
#include "tools/score.h"
#include "tools/score_text.h"
#include "tools/table.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

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
      if (!published.tells_constants()) continue;
      trainings.push_back(
          {cell_of(rows[r], "id"), cell_of(rows[r], "family"), std::move(published.plan), speed});
    } catch (const NotExpressed&) {  // `score` lists these
    }
  }
  return trainings;
}

Members those(const Predictions& predictions,
              const std::function<bool(const MeasuredTraining&)>& wanted) {
  Members members;
  for (std::size_t i = 0; i < predictions.trainings().size(); ++i)
    if (wanted(predictions.trainings()[i])) members.push_back(i);
  return members;
}

/// How the constants and the errors come out when each group in turn is left out of the fit.
struct LeftOut {
  std::string what;
  std::size_t groups = 0;
  std::vector<double> errors;  // of each group, by the fit without it
  Constants least;
  Constants most;
};

/// By what trainings are grouped.
struct Grouping {
  const char* what;
  std::string (*of)(const MeasuredTraining&);
};
constexpr std::array kGroupings{
    Grouping{"families left out", [](const MeasuredTraining& one) { return one.family; }},
    Grouping{
        "sources left out",
        [](const MeasuredTraining& one) { return one.family.substr(0, one.family.find('/')); }},
    Grouping{"GPU types left out",
             [](const MeasuredTraining& one) { return one.plan.job.cluster.gpu.key; }},
};

LeftOut leave_out(const Grouping& grouping, Predictions& predictions, const Fit& fit,
                  const LinearPredictions& linear) {
  std::set<std::string> groups;
  for (const MeasuredTraining& training : predictions.trainings())
    groups.insert(grouping.of(training));
  LeftOut left{grouping.what, groups.size(), {}, fit.values, fit.values};
  ProgressBar bar(grouping.what, static_cast<std::int64_t>(groups.size()), 1.0);
  std::int64_t done = 0;
  for (const std::string& group : groups) {
    bar.show(done++, group);
    const auto is_of = [&](const MeasuredTraining& one) { return grouping.of(one) == group; };
    const Members others =
        those(predictions, [&](const MeasuredTraining& one) { return !is_of(one); });
    if (others.empty()) continue;
    const Constants values = refit_constants(predictions, others, fit, linear).values;
    for (std::size_t c = 0; c < values.size(); ++c) {
      left.least[c] = std::min(left.least[c], values[c]);
      left.most[c] = std::max(left.most[c], values[c]);
    }
    for (const std::size_t member : those(predictions, is_of))
      left.errors.push_back(predictions.errors(values)[member]);
  }
  return left;
}

/// With the range over all fits that leave something out.
void print_constants(const Fit& fit, const std::vector<LeftOut>& left) {
  Constants least = fit.values;
  Constants most = fit.values;
  for (const LeftOut& one : left)
    for (std::size_t c = 0; c < least.size(); ++c) {
      least[c] = std::min(least[c], one.least[c]);
      most[c] = std::max(most[c], one.most[c]);
    }
  Table table({{"constant", Align::Left},
               {"believed"},
               {"fitted"},
               {left.empty() ? "" : "with a group left out"},
               {"", Align::Left}});
  for (std::size_t c = 0; c < fit.values.size(); ++c)
    table.add({std::string(free_constants()[c].name),
               fmt::format("{:.3f}", free_constants()[c].prior),
               fmt::format("{:.3f}", fit.values[c]),
               left.empty() ? "" : fmt::format("{:.3f} to {:.3f}", least[c], most[c]),
               fit.identified[c] ? "" : "the figures do not tell"});
  fmt::print("{}\n", table.text());
}

/// Measures ranks of this machine.
int calibrate_machine(const CalibrateOptions& options, const Hardware& hardware) {
  const int ranks = options.ranks.empty()
                        ? static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))
                        : count_of("command line: calibrate: --ranks", options.ranks);
  MachineRates rates;
  {
    ProgressBar bar("Measuring", 100);
    rates = measure_machine(ranks, hardware, [&](int step, int steps) {
      bar.show(100 * step / steps, fmt::format("{} of {} steps on {} ranks", step, steps, ranks));
    });
  }
  const std::string yaml = cluster_yaml(rates);
  if (options.output.empty()) {
    fmt::print("{}", yaml);
    return kYes;
  }
  write_file(options.output, yaml);
  Table table({{fmt::format("one of {} ranks", ranks), Align::Left}, {"sustains"}});
  table.add(
      {"matrix products, float32", fmt::format("{:.1f} GFLOP/s", rates.matmul_flops_per_s / 1e9)});
  table.add({"element-wise kernels", bandwidth_text(rates.memory_bytes_per_s)});
  if (ranks > 1) {
    table.add({"collectives, each link", bandwidth_text(rates.link_bytes_per_s)});
    table.add({"latency of each hop", format_seconds(rates.hop_s)});
  }
  fmt::print("{}\nWrote {}; predict by it with --cluster {}.\n", table.text(), options.output,
             options.output);
  return kYes;
}

/// Fits the catalogue's constants to a table of trainings.
int calibrate_catalogue(const CalibrateOptions& options, const Hardware& hardware) {
  Predictions predictions(planned(read_csv(options.table), hardware), hardware);
  const Members all = those(predictions, [](const MeasuredTraining&) { return true; });
  if (all.empty())
    throw InputError(
        fmt::format("{}: no row is a training that can be planned and states its "
                    "speed; `shardplan score {}` says why",
                    options.table, options.table));
  Fit fit;
  {
    ProgressBar bar("Fitting", 30, 1.0);
    std::int64_t turn = 0;
    fit = fit_constants(predictions, all,
                        [&] { bar.show(std::min<std::int64_t>(turn++, 29), "turns"); });
  }
  std::vector<LeftOut> left;
  if (options.leave_out) {
    const LinearPredictions linear(predictions, fit.values);
    for (const Grouping& grouping : kGroupings)
      left.push_back(leave_out(grouping, predictions, fit, linear));
  }
  Constants believed;
  for (const FreeConstant& constant : free_constants())
    believed.push_back(constant.prior);
  print_constants(fit, left);
  std::vector<NamedSummary> fits{{"as believed", summary_of(predictions.errors(believed))},
                                 {"fitted", summary_of(predictions.errors(fit.values))}};
  for (const LeftOut& one : left)
    fits.push_back({fmt::format("{} {}", one.groups, one.what), summary_of(one.errors)});
  fmt::print("{}", errors_text("error of tokens/s", fits));
  return kYes;
}

}  // namespace

int calibrate_command(const CalibrateOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  return options.table.empty() ? calibrate_machine(options, hardware)
                               : calibrate_catalogue(options, hardware);
}

}  // namespace shardplan
