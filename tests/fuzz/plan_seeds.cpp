#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "planner/planner.h"
#include "plans/error.h"
#include "plans/job_reader.h"
#include "tests/fuzz/executed_plans.h"
#include "tests/models/tiny_models.h"

namespace {

using namespace shardplan;

/// Plans whose arena is small enough to be executed while fuzzing: see executed_plans.h.
struct Seed {
  const char* name;
  int ranks;
  std::vector<Setting> settings;
};
const std::vector<Seed> kSeeds{
    {"one_rank", 1, {"strategy.sharding=NO_SHARD", "training.optimizer.name=sgd"}},
    {"ddp", 2, {"strategy.sharding=DDP", "strategy.ddp.bucket_cap_mb=0.001"}},
    {"recomputed", 3, {"training.activation_checkpointing=full"}},
    {"rows", 2, {"strategy.sharding=SHARD_GRAD_OP", "strategy.layout=per_parameter"}},
    {"accumulated", 2, {"training.gradient_accumulation={steps: 2, sync: last}"}},
    {"bfloat16_in_chunks",
     2,
     {"strategy.mixed_precision={param: bfloat16, reduce: float32}", "training.loss.chunks=2"}},
};

Job job_of(const Seed& seed, const Hardware& hardware) {
  std::vector<Setting> settings{"model.preset=llama-tiny",  // never looked up
                                "cluster.gpu=cpu",
                                fmt::format("cluster.gpus_per_node={}", seed.ranks),
                                "strategy.profile=cpu-reference", "training.sequence_length=4"};
  settings.insert(settings.end(), seed.settings.begin(), seed.settings.end());
  return read_job("", hardware, settings);
}

}  // namespace

/// plan_seeds FOLDER: writes the plans that fuzz_plan starts from.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Hardware hardware = Hardware::read(data_folder());
  const ModelGraph model = testing::tiny_llama(
      {.layers = 1, .channels = 8, .heads = 2, .kv_heads = 1, .ffn = 12, .vocab = 19});
  for (const Seed& seed : kSeeds) {
    const Plan plan = make_plan(job_of(seed, hardware), model);
    check(is_small(plan), "the fuzzer executes its seeds");
    std::ofstream(fmt::format("{}/{}", argv[1], seed.name)) << to_json(plan);
  }
}
