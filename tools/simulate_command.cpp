#include "simulator/simulate.h"

#include <fmt/format.h>

#include "plans/report.h"
#include "simulator/trace.h"
#include "tools/commands.h"
#include "tools/documents.h"
#include "tools/output_files.h"
#include "tools/prediction_text.h"
#include "tools/time_text.h"

namespace shardplan {

int simulate_command(const SimulateCommandOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  const auto [plan, note] = load_plan(options.job, hardware);
  Report report = simulate(plan, hardware.costs(plan.profile), {.timeline = true});
  report.plan_hash = hash_of(plan);
  const bool fits = report.fits.value_or(false);
  if (!options.trace.empty()) write_file(options.trace, trace_json(plan, report));

  if (options.json) {
    fmt::print("{}\n", prediction_json(report, plan));
    return fits ? kYes : kNo;
  }
  const Palette palette;
  fmt::print("{}{}\n{}{}{}\n{}", headline(plan), note, summary_text(plan, report),
             time_text(plan, report, palette), timeline_text(plan, report, palette),
             verdict_text(report, palette));
  if (!options.trace.empty())
    fmt::print("Wrote {}; open it in ui.perfetto.dev or chrome://tracing.\n", options.trace);
  return fits ? kYes : kNo;
}

}  // namespace shardplan
