#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "plans/error.h"
#include "plans/names.h"
#include "simulator/simulate.h"
#include "tools/answers_json.h"
#include "tools/check.h"
#include "tools/check_text.h"
#include "tools/commands.h"
#include "tools/cpu_job.h"
#include "tools/documents.h"
#include "tools/output_files.h"
#include "tools/prediction_text.h"

namespace shardplan {
namespace {

constexpr std::string_view kSource = "command line: check";

constexpr double kLargestTimeShare = 100;  // steps may be many times slower than predicted

constexpr std::array kSides{EnumName{Side::Over, "over"}, EnumName{Side::Under, "under"}};

/// "3%" or "0.03", at most `most`.
double share_of(std::string_view flag, const std::string& text, double most) {
  double value = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool percent = stop != end && *stop == '%';
  if (percent) ++stop;
  const double share = percent ? value / 100 : value;
  if (error != std::errc() || stop != end || !(share >= 0 && share <= most))
    throw InputError(
        fmt::format("{}: {} {}: expected a share from 0 to {:.0f}%, such as 3% or 0.03", kSource,
                    flag, text, 100 * most));
  return share;
}

Tolerances tolerances_of(const CheckOptions& options) {
  Tolerances tolerances;
  tolerances.share = share_of("--tolerance", options.tolerance, 1);
  if (!options.time_tolerance.empty())
    tolerances.time_share = share_of("--time-tolerance", options.time_tolerance, kLargestTimeShare);
  tolerances.exact = options.exact;
  if (!options.one_sided.empty())
    tolerances.side = value_of(kSides, options.one_sided, "side of --one-sided");
  const std::vector<std::string> known = metric_names();
  for (const std::string& metric : options.metrics)
    if (std::ranges::find(known, metric) == known.end())
      throw InputError(
          fmt::format("{}: --metrics: {}", kSource, unknown_name("metric", metric, known)));
  tolerances.metrics = options.metrics;
  return tolerances;
}

/// A prediction and who it is for.
struct Predicted {
  Report report;
  std::string who;
};

Predicted predict(const Plan& plan, const Hardware& hardware) {
  Report report = simulate(plan, hardware.costs(plan.profile));
  report.plan_hash = hash_of(plan);
  return {std::move(report), who_executes(plan.job, plan.profile)};
}

/// The prediction of a plan, a job or a prediction.json. When `measured` is of the plan that `run`
/// makes of the same job for CPU ranks, it is that one.
Predicted prediction_of(const Document& document, const Report& measured,
                        const Hardware& hardware) {
  if (document.kind == DocumentKind::Prediction) {
    const Job job = job_of_prediction(document);
    return {report_from_json(document.text, document.path),
            who_executes(job, job.strategy.profile.value_or(Profile::Cuda))};
  }
  // What names a plan was written by `run`.
  const JobFlags flags{.use = measured.plan_hash.empty() ? JobUse::Predict : JobUse::Run};
  const Plan plan = load_plan(document, flags, hardware).plan;
  Predicted as_given = predict(plan, hardware);
  if (measured.plan_hash.empty() || measured.plan_hash == as_given.report.plan_hash)
    return as_given;
  Predicted as_run = predict(verified_plan(on_cpu(plan.job, hardware)), hardware);
  return measured.plan_hash == as_run.report.plan_hash ? as_run : as_given;
}

void expect_same_plan(const Report& predicted, const Report& measured,
                      const CheckOptions& options) {
  if (measured.plan_hash.empty() || predicted.plan_hash.empty() ||
      measured.plan_hash == predicted.plan_hash)
    return;
  throw InputError(fmt::format(
      "{}: measured plan {} on {} ranks, but {} gives plan {} on {} ranks; `run` writes the plan "
      "that it executed beside its run.json",
      options.measured, measured.plan_hash, measured.world_size, options.plan, predicted.plan_hash,
      predicted.world_size));
}

/// That the measurement does not exceed an older one.
std::vector<Finding> hold_against_baseline(const std::string& path, const Report& measured,
                                           Tolerances tolerances) {
  tolerances.side = Side::Over;
  tolerances.against = "baseline";
  return hold_against(read_measurement(path), measured, tolerances).findings;
}

}  // namespace

int check_command(const CheckOptions& options) {
  const Tolerances tolerances = tolerances_of(options);
  const Report measured = read_measurement(options.measured);
  const auto [predicted, who] =
      prediction_of(read_document(options.plan), measured, Hardware::read(data_folder()));
  expect_same_plan(predicted, measured, options);
  CheckResult result = hold_against(predicted, measured, tolerances);
  if (!options.baseline.empty())
    std::ranges::move(hold_against_baseline(options.baseline, measured, tolerances),
                      std::back_inserter(result.findings));

  if (!options.junit.empty()) write_file(options.junit, junit_xml(result));
  if (options.json) {
    fmt::print("{}\n", check_json(result));
  } else {
    fmt::print("Holds {} against the prediction of {} for {}.\n{}", options.measured, options.plan,
               who, check_text(result, Palette()));
  }
  return result.passed() ? kYes : kNo;
}

}  // namespace shardplan
