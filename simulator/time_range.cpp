#include "simulator/time_range.h"

#include <algorithm>

namespace shardplan {
namespace {

constexpr double kStated = 0.10;
constexpr double kDefaulted = 0.20;
constexpr double kGuess = 1.0;

/// What makes the time of the plan a guess.
std::string guess_of(const Plan& plan) {
  const Job& job = plan.job;
  if (is_cpu(plan.profile)) return "the catalogue's CPU is another machine's";
  if (job.training.matmul_dtype == MatmulDtype::NvFp4)
    return "what rounding to 4 bits costs is not known";
  const bool offloads = std::ranges::any_of(
      plan.buffers, [](const Buffer& buffer) { return buffer.space != Space::Device; });
  if (offloads) return "trainings that move states to the host were up to a factor off";
  const bool over_pcie =
      plan.world_size() > 1 && job.cluster.network.intra_node_link == NodeLink::Pcie;
  if (job.model.lora && over_pcie) return "adapters trained over PCIe were up to a factor off";
  return "";
}

/// Fields that decide about the speed of such a job.
std::vector<std::string> deciding_fields(const Plan& plan) {
  const Job& job = plan.job;
  std::vector<std::string> fields{"training.activation_checkpointing"};
  if (is_torch(plan.profile)) fields.emplace_back("strategy.profile");
  if (job.cluster.gpu.has_asynchronous_tensor_cores())
    fields.emplace_back("training.attention_kernel");
  if (job.cluster.nodes > 1) fields.emplace_back("cluster.network.inter_node_bytes_per_s");
  if (job.cluster.gpus_per_node > 1 && job.cluster.network.intra_node_link == NodeLink::Pcie)
    fields.emplace_back("cluster.network.intra_node_efficiency");
  return fields;
}

}  // namespace

TimeRange time_range(const Plan& plan) {
  TimeRange range;
  for (const std::string& field : deciding_fields(plan))
    if (!plan.job.places.stated(field)) range.defaulted.push_back(field);
  range.why = guess_of(plan);
  range.share = !range.why.empty() ? kGuess : range.defaulted.empty() ? kStated : kDefaulted;
  return range;
}

}  // namespace shardplan
