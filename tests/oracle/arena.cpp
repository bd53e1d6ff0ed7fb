#include "tests/oracle/arena.h"

#include <fmt/format.h>

#include <array>
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

Outcome measure(const std::string& preset, const std::string& strategy, const std::string& more,
                const Hardware& hardware) {
  const std::vector<Setting> settings{
      "model.preset=" + preset,
      "cluster.gpu=h100-sxm-80",
      "cluster.gpus_per_node=8",
      "cluster.nodes=" + std::string(strategy == "HYBRID_SHARD" ? "2" : "1"),
      "strategy.sharding=" + strategy,
      "training.sequence_length=1024",
      more};
  const Plan plan = make_plan(read_job("", hardware, settings));
  const Bytes bound = plan.arena.live_bound_bytes;
  return {
      .name = fmt::format("{:16} {:13} {:62} arena {:>10}, live bound {:>10}, issue order {:>10}",
                          preset, strategy, more, format_bytes(plan.arena.bytes),
                          format_bytes(bound), format_bytes(plan.arena.issue_order_bytes)),
      .checks = {
          {"faults", static_cast<double>(verify(plan).size()), 0},
          {"arena / live bound", static_cast<double>(plan.arena.bytes) / static_cast<double>(bound),
           kMostOverLiveBound}}};
}

/// What changes the shape of a plan most.
constexpr std::array kVariants{
    "training.micro_batch=1",
    "training.gradient_accumulation={steps: 4, sync: every}",
    "training.gradient_accumulation={steps: 4, sync: last}",
    "training.activation_checkpointing=full",
    "training.activation_checkpointing={selective: [rms_norm, layer_norm, swiglu, gelu]}",
    "strategy.layout=per_parameter",
    "strategy.mixed_precision={param: bfloat16, reduce: float32}"};

}  // namespace

int arena(Scorecard::Form form) {
  const Hardware hardware = Hardware::read(data_folder());
  Scorecard scorecard(form);
  for (const Preset& preset : read_presets(data_folder()))
    for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "DDP"})
      for (const char* variant : kVariants)
        scorecard.add(measure(preset.key, strategy, variant, hardware));
  return scorecard.close();
}

}  // namespace shardplan::oracle
