#include "tests/oracle/waits.h"

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

/// The settings of a plan beside 8 GPUs and 1,024 tokens, which all have.
using Shape = std::array<const char*, 3>;  // preset, strategy, more
constexpr std::array kShapes{
    Shape{"gpt2", "FULL_SHARD", "training.activation_checkpointing=full"},
    Shape{"gpt2", "SHARD_GRAD_OP", "training.gradient_accumulation={steps: 4, sync: every}"},
    Shape{"gpt2", "NO_SHARD", "training.clip_grad_norm=1.0"},
    Shape{"gpt2", "DDP", "training.gradient_accumulation={steps: 4, sync: last}"},
    Shape{"llama-20m", "FULL_SHARD", "strategy.layout=per_parameter"},
    Shape{"llama-3.2-1b", "FULL_SHARD", "training.clip_grad_norm=1.0"},
    Shape{"llama-3.2-1b", "FULL_SHARD",
          "strategy.mixed_precision={param: bfloat16, reduce: float32}"},
    Shape{"llama-3.2-1b", "SHARD_GRAD_OP", "training.activation_checkpointing=full"},
    Shape{"llama-3.2-1b", "DDP", "training.activation_checkpointing=full"},
    Shape{"gpt2", "HYBRID_SHARD", "training.activation_checkpointing=full"}};

Outcome measure(const Shape& shape, const Hardware& hardware) {
  const auto [preset, strategy, more] = shape;
  const bool hybrid = std::string(strategy) == "HYBRID_SHARD";
  const std::vector<Setting> settings{std::string("model.preset=") + preset,
                                      "cluster.gpu=h100-sxm-80",
                                      "cluster.gpus_per_node=8",
                                      fmt::format("cluster.nodes={}", hybrid ? 2 : 1),
                                      std::string("strategy.sharding=") + strategy,
                                      "training.sequence_length=1024",
                                      more};
  Plan plan = make_plan(read_job("", hardware, settings));
  int removed = 0;
  Outcome outcome{.checks = {{"faults", static_cast<double>(verify(plan).size()), 0}}};
  double unnoticed = 0;
  for (Instruction& instruction : plan.instructions)
    for (std::size_t w = 0; w < instruction.after.size(); ++w) {
      const std::vector<Wait> all = instruction.after;
      instruction.after.erase(instruction.after.begin() + static_cast<std::ptrdiff_t>(w));
      ++removed;
      if (verify(plan).empty()) ++unnoticed;
      instruction.after = all;
    }
  outcome.name = fmt::format("{:13} {:14} {:60} {:5} waits", preset, strategy, more, removed);
  outcome.checks.push_back({"waits that are not missed", unnoticed, 0});
  return outcome;
}

}  // namespace

int waits(Scorecard::Form form) {
  const Hardware hardware = Hardware::read(data_folder());
  Scorecard scorecard(form);
  for (const Shape& shape : kShapes)
    scorecard.add(measure(shape, hardware));
  return scorecard.close();
}

}  // namespace shardplan::oracle
