#include "tests/oracle/numerics_twins.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "plans/error.h"

namespace shardplan::oracle {
namespace {

namespace fs = std::filesystem;

/// The other of two strategies that differ only in how long parameters stay whole.
std::optional<Strategy> other_lifetime(Strategy strategy) {
  switch (strategy) {
    case Strategy::FullShard: return Strategy::ShardGradOp;
    case Strategy::ShardGradOp: return Strategy::FullShard;
    case Strategy::HybridShard: return Strategy::HybridShardZero2;
    case Strategy::HybridShardZero2: return Strategy::HybridShard;
    default: return std::nullopt;
  }
}

/// The embedding adds to the gradient of the head, which is the same weight.
bool is_tied(const Plan& plan) {
  return std::ranges::any_of(plan.instructions, [](const Instruction& instruction) {
    const auto* compute = std::get_if<Compute>(&instruction.operation);
    return compute != nullptr && compute->kernel == Kernel::EmbeddingBackward &&
           std::ranges::find(instruction.reads, instruction.writes.front()) !=
               instruction.reads.end();
  });
}

bool is_replicated(Strategy strategy) {
  return strategy == Strategy::Ddp || strategy == Strategy::NoShard;
}

Twin with(const Job& job, Strategy strategy, Layout layout = Layout::Flat) {
  Twin twin{fmt::format("as {} {}", to_string(strategy), to_string(layout)), job};
  twin.job.strategy.sharding = strategy;
  twin.job.strategy.layout = layout;
  return twin;
}

/// What the ranks read in a step, one after the other.
void write_order_of_one_rank(const std::string& order, const fs::path& to) {
  using nlohmann::json;
  try {
    json steps = json::parse(std::ifstream(order));
    for (json& ranks : steps) {
      json micro_steps = json::array();
      for (const json& rank : ranks)
        micro_steps.insert(micro_steps.end(), rank.begin(), rank.end());
      ranks = json::array({std::move(micro_steps)});
    }
    std::ofstream(to) << steps;
  } catch (const json::exception& error) {
    throw InputError(fmt::format("{}: {}", order, error.what()));
  }
}

Twin on_one_rank(const Job& job, const fs::path& folder) {
  const fs::path order = folder / "order_of_one_rank.json";
  write_order_of_one_rank(job.run.data_order, order);
  Twin twin{"as one rank with two micro-steps", job};
  twin.job.cluster.gpus_per_node = 1;
  twin.job.training.gradient_accumulation.steps = 2;
  twin.job.run.data_order = order.string();
  return twin;
}

}  // namespace

std::vector<Twin> twins_of(const Plan& plan, const fs::path& folder) {
  const Job& job = plan.job;
  const Strategy own = job.strategy.sharding;
  const bool is_float32 = !job.strategy.mixed_precision;
  const bool has_one_micro_step = job.training.gradient_accumulation.steps == 1;
  std::vector<Twin> twins;
  if (const auto other = other_lifetime(own)) {
    const bool reduces_once = has_one_micro_step || job.training.gradient_accumulation.sync ==
                                                        GradientAccumulation::Sync::Last;
    const Layout layout = job.strategy.layout.value_or(Layout::Flat);
    twins.push_back(with(job, *other, layout));
    if (*other == Strategy::FullShard || *other == Strategy::ShardGradOp)
      twins.push_back(with(job, reduces_once ? Strategy::Zero1 : Strategy::Zero2, layout));
  }
  if (job.training.activation_checkpointing.kind != ActivationCheckpointing::Kind::None) {
    twins.push_back({"without checkpointing", job});
    twins.back().job.training.activation_checkpointing = {};
  }
  if (is_float32 && is_replicated(own))
    twins.push_back(with(job, own == Strategy::Ddp ? Strategy::NoShard : Strategy::Ddp));
  if (is_float32 && job.world_size() == 1) {
    twins.push_back(with(job, Strategy::Ddp));
    twins.push_back(with(job, Strategy::FullShard));
    twins.push_back(with(job, Strategy::FullShard, Layout::PerParameter));
  }
  // PyTorch adds the two gradients of a tied weight before it adds them to those of a micro-step
  // before; we add one after the other, which needs no memory.
  if (is_float32 && is_replicated(own) && job.world_size() == 2 && has_one_micro_step &&
      !is_tied(plan))
    twins.push_back(on_one_rank(job, folder));
  return twins;
}

}  // namespace shardplan::oracle
