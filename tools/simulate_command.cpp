#include "simulator/simulate.h"

#include <fmt/format.h>

#include <optional>

#include "plans/report.h"
#include "simulator/goodput.h"
#include "simulator/trace.h"
#include "tools/answers_json.h"
#include "tools/commands.h"
#include "tools/documents.h"
#include "tools/goodput_text.h"
#include "tools/numbers.h"
#include "tools/output_files.h"
#include "tools/prediction_text.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

constexpr Seconds kMinute = 60;

std::optional<LongTraining> long_training(const SimulateCommandOptions& options, const Plan& plan,
                                          const Report& report) {
  const auto tokens = amount_of("command line: simulate: --tokens", options.tokens);
  if (!tokens || !report.time) return std::nullopt;
  const Reliability reliability{
      .gpu_mtbf_s = options.gpu_mtbf_hours * kHour,
      .checkpoint_every_s = options.checkpoint_every_minutes * kMinute,
      .checkpoint_s = options.checkpoint_seconds,
      .restart_s = options.restart_minutes * kMinute,
      .jitter = options.jitter,
      .seed = options.seed,
  };
  const Seconds steps_s = *tokens / report.time->tokens_per_s;
  LongTraining training{*tokens, steps_s, goodput(steps_s, plan.world_size(), reliability), {}};
  if (report.cost && report.cost->per_hour)
    training.cost = *report.cost->per_hour * training.result.mean_s / kHour;
  return training;
}

}  // namespace

SimulateCommandOptions::SimulateCommandOptions()
    : gpu_mtbf_hours(Reliability{}.gpu_mtbf_s / kHour),
      checkpoint_seconds(Reliability{}.checkpoint_s),
      restart_minutes(Reliability{}.restart_s / kMinute) {}

int simulate_command(const SimulateCommandOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  const auto [plan, note] = load_plan(options.job, hardware);
  Report report = simulate(plan, hardware.costs(plan.profile), {.timeline = true});
  report.plan_hash = hash_of(plan);
  const bool fits = report.fits.value_or(false);
  if (!options.trace.empty()) write_file(options.trace, trace_json(plan, report));

  const std::optional<LongTraining> training = long_training(options, plan, report);
  if (options.json) {
    fmt::print("{}\n", simulation_json(report, plan, training));
    return fits ? kYes : kNo;
  }
  const Palette palette;
  fmt::print("{}{}\n{}{}{}{}\n{}", headline(plan), note, summary_text(plan, report),
             time_text(plan, report, palette), training ? text_of(*training, palette) : "",
             timeline_text(plan, report, palette), verdict_text(report, palette));
  if (!options.trace.empty())
    fmt::print("Wrote {}; open it in ui.perfetto.dev or chrome://tracing.\n", options.trace);
  return fits ? kYes : kNo;
}

}  // namespace shardplan
