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

/// A plan: the job's settings beside the 8 GPUs and 1,024 tokens that all have.
struct Shape {
  std::string preset;
  std::string strategy;
  std::string more;  // another setting

  bool operator==(const Shape&) const = default;
};

/// A plan that misses the bar, and the least that it reaches.
struct KnownDeviation {
  Shape shape;
  double over_live_bound;
};
const std::vector<KnownDeviation>& known_deviations() {
  // A block's recomputed activations, gathered parameters and gradients roll through what the kept
  // inputs of the blocks leave, a little less every block: first fit leaves gaps between them.
  static const std::vector<KnownDeviation> known{
      {{"llama-3-8b", "FULL_SHARD", "training.activation_checkpointing=full"}, 1.023},
      {{"llama-3-8b", "HYBRID_SHARD", "training.activation_checkpointing=full"}, 1.023}};
  return known;
}

Outcome measure(const Shape& shape, const Hardware& hardware) {
  const std::vector<Setting> settings{
      "model.preset=" + shape.preset,
      "cluster.gpu=h100-sxm-80",
      "cluster.gpus_per_node=8",
      std::string("cluster.nodes=") + (shape.strategy == "HYBRID_SHARD" ? "2" : "1"),
      "strategy.sharding=" + shape.strategy,
      "training.sequence_length=1024",
      shape.more};
  const Plan plan = make_plan(read_job("", hardware, settings));
  const Bytes bound = plan.arena.live_bound_bytes;
  const double over = static_cast<double>(plan.arena.bytes) / static_cast<double>(bound);
  Check packing{"arena / live bound", over, kMostOverLiveBound};
  for (const KnownDeviation& known : known_deviations())
    if (known.shape == shape)
      packing = {"arena / live bound, known to miss 1.02", over, known.over_live_bound};
  return {
      .name = fmt::format("{:16} {:13} {:60} arena {:>10}, live bound {:>10}, issue order {:>10}",
                          shape.preset, shape.strategy, shape.more, format_bytes(plan.arena.bytes),
                          format_bytes(bound), format_bytes(plan.arena.issue_order_bytes)),
      .checks = {{"faults", static_cast<double>(verify(plan).size()), 0}, packing}};
}

/// What changes the shape of a plan most.
constexpr std::array kVariants{
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
    for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "DDP"})
      scorecard.add(measure({preset.key, strategy, "training.micro_batch=1"}, hardware));
  for (const char* preset : {"gpt2", "llama-3.2-1b", "llama-3-8b"})
    for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "DDP"})
      for (const char* variant : kVariants)
        scorecard.add(measure({preset, strategy, variant}, hardware));
  return scorecard.close();
}

}  // namespace shardplan::oracle
