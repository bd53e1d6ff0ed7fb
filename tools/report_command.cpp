#include <fmt/format.h>

#include "plans/error.h"
#include "simulator/simulate.h"
#include "tools/commands.h"
#include "tools/cpu_job.h"
#include "tools/documents.h"
#include "tools/side_by_side.h"

namespace shardplan {
namespace {

/// The plan that was predicted: of a prediction, its job planned again.
Plan predicted_plan(const Document& document, const Hardware& hardware) {
  // What is measured instruction by instruction was written by `run`.
  const JobFlags flags{.use = JobUse::Run};
  if (document.kind != DocumentKind::Prediction) return load_plan(document, flags, hardware).plan;
  return verified_plan(job_of_prediction(document));
}

/// The plan that was measured: the predicted one, or what `run` makes of its job.
Plan measured_plan(const ReportOptions& options, const Report& measured, const Hardware& hardware) {
  Plan plan = predicted_plan(read_document(options.prediction), hardware);
  if (measured.plan_hash.empty() || hash_of(plan) == measured.plan_hash) return plan;
  Plan as_run = verified_plan(on_cpu(plan.job, hardware));
  if (hash_of(as_run) == measured.plan_hash) return as_run;
  throw InputError(fmt::format("{}: measured plan {}, but {} gives plan {}", options.measured,
                               measured.plan_hash, options.prediction, hash_of(plan)));
}

}  // namespace

int report_command(const ReportOptions& options) {
  const Report measured = read_measurement(options.measured);
  if (measured.instructions.empty())
    throw InputError(
        fmt::format("{}: has no times of instructions; `run` writes them", options.measured));
  const Hardware hardware = Hardware::read(data_folder());
  const Plan plan = measured_plan(options, measured, hardware);
  const Report predicted = simulate(plan, hardware.costs(plan.profile), {.timeline = true});
  const std::vector<UnitInPhase> rows = side_by_side(plan, predicted, measured);
  if (options.json)
    fmt::print("{}\n", side_by_side_json(rows));
  else
    fmt::print(
        "{} beside what was predicted for it, a step on one rank{}. Collectives are measured "
        "with waiting for other ranks.\n{}",
        options.measured, measured.rehearsal.empty() ? "" : ", rehearsed as " + measured.rehearsal,
        side_by_side_text(rows));
  return kYes;
}

}  // namespace shardplan
