#include <fmt/format.h>

#include "plans/verify.h"
#include "tools/answers_json.h"
#include "tools/commands.h"
#include "tools/documents.h"
#include "tools/prediction_text.h"
#include "tools/table.h"

namespace shardplan {
namespace {

std::size_t count_waits(const Plan& plan) {
  std::size_t waits = 0;
  for (const Instruction& instruction : plan.instructions)
    waits += instruction.after.size();
  return waits;
}

std::string proof_text(const Plan& plan, const Palette& palette) {
  if (has_allocator(plan.profile))
    return fmt::format(
        "{}: no two of its {} instructions race on any of {} ranks, none deadlocks, every buffer "
        "is used while it is allocated and every gradient reduced once; {} buffers, {} waits.\n",
        palette(Tone::Good, "proved"), plan.instructions.size(), plan.world_size(),
        plan.buffers.size(), count_waits(plan));
  return fmt::format(
      "{}: every interleaving of its {} instructions gives the same bits on {} ranks ({} rank "
      "{}), and none deadlocks; {} buffers, {} waits, arena {}.\n",
      palette(Tone::Good, "proved"), plan.instructions.size(), plan.world_size(),
      plan.classes.size(), plan.classes.size() == 1 ? "class" : "classes", plan.buffers.size(),
      count_waits(plan), format_bytes(plan.arena.bytes));
}

std::string faults_text(const std::vector<Fault>& faults, const Palette& palette) {
  Table table({{"instruction", Align::Left}, {"buffer", Align::Left}, {"why", Align::Left}});
  for (const Fault& fault : faults)
    table.add({fault.instruction.empty() ? "-" : fault.instruction,
               fault.buffer.empty() ? "-" : fault.buffer, fault.why});
  return fmt::format("{}: {} fault{}\n{}", palette(Tone::Bad, "not right"), faults.size(),
                     faults.size() == 1 ? "" : "s", table.text());
}

}  // namespace

int verify_command(const VerifyOptions& options) {
  const Document document = read_document(options.plan);
  expect_kind(document, DocumentKind::Plan);
  const Plan plan = plan_from_json(document.text, document.path);
  const std::vector<Fault> faults = verify(plan);
  if (options.json) {
    fmt::print("{}\n", verification_json(plan, faults));
  } else {
    const Palette palette;
    fmt::print("Verifies a plan of {}.\n{}", who_executes(plan.job, plan.profile),
               faults.empty() ? proof_text(plan, palette) : faults_text(faults, palette));
  }
  return faults.empty() ? kYes : kNo;
}

}  // namespace shardplan
