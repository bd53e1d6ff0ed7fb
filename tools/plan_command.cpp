#include <fmt/format.h>

#include "plans/report.h"
#include "simulator/simulate.h"
#include "tools/commands.h"
#include "tools/documents.h"
#include "tools/output_files.h"
#include "tools/prediction_text.h"
#include "tools/remedies.h"

namespace shardplan {
namespace {

/// "What would help first: ..."
std::string advice_text(const Job& job, const Hardware& hardware) {
  const std::vector<Remedy> found = remedies(job, hardware);
  if (found.empty()) return "";
  return fmt::format("What would help first: {}.\n", text_of(found.front()));
}

}  // namespace

int plan_command(const PlanOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  const Plan plan = verified_plan(load_job(options.job, hardware));
  Report report = simulate(plan, hardware.costs(plan.profile));
  report.plan_hash = hash_of(plan);
  const bool fits = report.fits.value_or(false);
  if (!options.output.empty()) write_file(options.output, to_json(plan));

  if (options.json) {
    fmt::print("{}\n", prediction_json(report, plan));
    return fits ? kYes : kNo;
  }
  const Palette palette;
  fmt::print("{}\n{}{}{}\n{}", headline(plan), summary_text(plan, report),
             memory_text(report, palette), communication_text(report, palette),
             verdict_text(report, palette));
  if (!fits) fmt::print("{}", advice_text(plan.job, hardware));
  if (!options.output.empty()) fmt::print("Wrote {}.\n", options.output);
  return fits ? kYes : kNo;
}

}  // namespace shardplan
