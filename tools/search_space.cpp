#include "tools/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plans/error.h"
#include "tools/job_flags.h"
#include "tools/numbers.h"
#include "tools/strategy_names.h"

namespace shardplan {
namespace {

constexpr std::array<std::int64_t, 14> kMicroBatches{1,  2,  3,  4,  6,  8,  12,
                                                     16, 24, 32, 48, 64, 96, 128};

double price_from(const std::string& text, const std::string& where) {
  const auto price = number_from(text);
  if (!price || !(*price >= 0))
    throw InputError(fmt::format("{}: expected dollars per hour, got {}", where, text));
  return *price;
}

/// Counts of such GPUs that are tried, ascending.
std::vector<int> worlds_of(const GpuOffer& offer) {
  std::vector<int> worlds;
  const int node = offer.gpu.max_gpus_per_node;
  for (int gpus = 1; gpus < node && gpus <= offer.most; gpus *= 2)
    worlds.push_back(gpus);
  const int nodes = offer.most / node;
  for (int n = 1; n <= nodes; n *= 2) {
    worlds.push_back(n * node);
    if (n > 1 && n + n / 2 <= nodes) worlds.push_back((n + n / 2) * node);
  }
  if (nodes > 0) worlds.push_back(nodes * node);
  std::ranges::sort(worlds);
  worlds.erase(std::unique(worlds.begin(), worlds.end()), worlds.end());
  return worlds;
}

/// Norms and activations: memory for little time.
ActivationCheckpointing elementwise() {
  using enum OperatorKind;
  ActivationCheckpointing checkpointing{.kind = ActivationCheckpointing::Kind::Selective};
  checkpointing.operators = {RmsNorm, LayerNorm, SwiGlu, GeGlu, Gelu};
  return checkpointing;
}

bool makes_sense(const Job& job) {
  const bool one_copy = job.strategy.sharding == Strategy::Ddp;
  if (job.world_size() == 1) return one_copy;
  const bool hybrid = job.strategy.sharding == Strategy::HybridShard ||
                      job.strategy.sharding == Strategy::HybridShardZero2;
  return !hybrid || job.strategy.shard_group.value_or(job.cluster.gpus_per_node) < job.world_size();
}

/// The micro-batch, and as many micro-steps as make up the global batch; false when none do.
bool set_batch(Job& job, std::int64_t micro_batch, std::optional<std::int64_t> global_batch) {
  if (micro_batch > kMostTokens / job.training.sequence_length) return false;
  job.training.micro_batch = micro_batch;
  if (!global_batch) return true;
  const std::int64_t sequences = micro_batch * job.world_size();
  if (*global_batch % sequences != 0) return false;
  job.training.gradient_accumulation.steps = static_cast<int>(*global_batch / sequences);
  return true;
}

Job placed(const Job& job, const GpuOffer& offer, int world) {
  Job placed = job;
  placed.cluster.gpu = offer.gpu;
  placed.cluster.network = offer.network;
  placed.cluster.price_per_gpu_hour = offer.price_per_hour;
  set_world(placed, world);
  return placed;
}

}  // namespace

GpuOffer offer_from(const std::string& text, const std::string& where, const Hardware& hardware) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw InputError(fmt::format("{} {}: expected GPU:COUNT, such as h100-sxm-80:64", where, text));
  const std::size_t second = text.find(':', colon + 1);
  GpuOffer offer;
  offer.gpu = located(where, [&] { return hardware.gpu(text.substr(0, colon)); });
  offer.network = hardware.network_of(offer.gpu);
  offer.most = count_of(where, text.substr(colon + 1, second - colon - 1));
  offer.price_per_hour = second == std::string::npos ? offer.gpu.price_per_hour
                                                     : price_from(text.substr(second + 1), where);
  return offer;
}

GpuOffer offer_of(const ClusterJob& cluster) {
  const auto& price = cluster.price_per_gpu_hour;
  return {cluster.gpu, cluster.network, cluster.world_size(),
          price ? price : cluster.gpu.price_per_hour};
}

SearchSpace usual_space(const Job& job, const std::vector<GpuOffer>& offers) {
  using Kind = ActivationCheckpointing::Kind;
  return {.offers = offers,
          .strategies = usual_strategies(job, true),
          .micro_batches = {kMicroBatches.begin(), kMicroBatches.end()},
          .checkpointing = {{.kind = Kind::None},
                            elementwise(),
                            {.kind = Kind::Every, .every = 4},
                            {.kind = Kind::Every, .every = 2},
                            {.kind = Kind::Full}},
          .global_batch = std::nullopt};
}

Candidates candidates_of(const Job& job, const SearchSpace& space) {
  Candidates result;
  const std::size_t modes = space.checkpointing.size();
  const std::size_t batches = space.micro_batches.size();
  result.works = space.offers.size() * modes * batches;
  for (std::size_t o = 0; o < space.offers.size(); ++o)
    for (const int world : worlds_of(space.offers[o]))
      for (const Strategy strategy : space.strategies) {
        Job variant = placed(job, space.offers[o], world);
        set_sharding(variant, strategy);
        if (!makes_sense(variant)) continue;
        for (std::size_t mode = 0; mode < modes; ++mode) {
          variant.training.activation_checkpointing = space.checkpointing[mode];
          for (std::size_t batch = 0; batch < batches; ++batch)
            if (set_batch(variant, space.micro_batches[batch], space.global_batch))
              result.all.push_back({variant, result.groups, (o * modes + mode) * batches + batch});
          ++result.groups;
        }
      }
  return result;
}

}  // namespace shardplan
