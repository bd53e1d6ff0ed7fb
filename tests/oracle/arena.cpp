#include "tests/oracle/arena.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "planner/planner.h"
#include "plans/hardware.h"
#include "plans/job_reader.h"
#include "plans/presets.h"
#include "plans/verify.h"

namespace shardplan::oracle {
namespace {

constexpr double kMostOverLiveBound = 1.02;

Outcome measure(const std::string& preset, const std::string& strategy, const Hardware& hardware) {
  const std::vector<Setting> settings{"model.preset=" + preset, "cluster.gpu=h100-sxm-80",
                                      "cluster.gpus_per_node=8", "strategy.sharding=" + strategy,
                                      "training.sequence_length=1024"};
  const Plan plan = make_plan(read_job("", hardware, settings));
  const Bytes bound = plan.arena.live_bound_bytes;
  return {.name = fmt::format("{:16} {:13} arena {:>10}, live bound {:>10}, issue order {:>10}",
                              preset, strategy, format_bytes(plan.arena.bytes), format_bytes(bound),
                              format_bytes(plan.arena.issue_order_bytes)),
          .checks = {{"faults", static_cast<double>(verify(plan).size()), 0},
                     {"arena / live bound",
                      static_cast<double>(plan.arena.bytes) / static_cast<double>(bound),
                      kMostOverLiveBound}}};
}

}  // namespace

int arena(Scorecard::Form form) {
  const Hardware hardware = Hardware::read(data_folder());
  Scorecard scorecard(form);
  for (const Preset& preset : read_presets(data_folder()))
    for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "DDP"})
      scorecard.add(measure(preset.key, strategy, hardware));
  return scorecard.close();
}

}  // namespace shardplan::oracle
