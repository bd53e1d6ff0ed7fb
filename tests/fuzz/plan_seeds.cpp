#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "planner/model.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "tests/fuzz/executed_plans.h"
#include "tests/models/tiny_models.h"

namespace {

using namespace shardplan;

struct Seed {
  std::string name;
  Job job;
  ModelGraph model;
};

/// Plans whose arena is small enough to be executed while fuzzing: see plan_fuzz.cpp.
std::vector<Seed> seeds() {
  const ModelGraph llama = testing::tiny_llama(
      {.layers = 1, .channels = 8, .heads = 2, .kv_heads = 1, .ffn = 12, .vocab = 19});
  const ModelGraph gpt2 = model_from_config(
      R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8,
          "vocab_size": 19})",
      "gpt2");
  std::vector<Seed> all;
  const auto add = [&](const char* name, Strategy strategy, int ranks, const ModelGraph& model) {
    all.push_back({name, testing::tiny_job(strategy, ranks), model});
    all.back().job.strategy.profile = Profile::CpuReference;
    all.back().job.training.micro_batch = 1;
    all.back().job.training.sequence_length = 4;
    return &all.back().job;
  };
  add("one_rank", Strategy::NoShard, 1, llama)->training.optimizer.name = OptimizerJob::Name::Sgd;
  add("ddp", Strategy::Ddp, 2, llama)->strategy.ddp.bucket_cap_mb = 0.001;
  add("full_shard", Strategy::FullShard, 3, gpt2)->training.activation_checkpointing.kind =
      ActivationCheckpointing::Kind::Full;
  add("rows", Strategy::ShardGradOp, 2, llama)->strategy.layout = Layout::PerParameter;
  add("accumulated", Strategy::FullShard, 2, llama)->training.gradient_accumulation = {
      .steps = 2, .sync = GradientAccumulation::Sync::Last};
  Job* narrow = add("bfloat16_in_chunks", Strategy::FullShard, 2, llama);
  narrow->strategy.mixed_precision = {.param = Dtype::BFloat16, .reduce = Dtype::Float32};
  narrow->training.loss_chunks = 2;
  return all;
}

}  // namespace

/// plan_seeds FOLDER: writes the plans that fuzz_plan starts from.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (const Seed& seed : seeds()) {
    const Plan plan = make_plan(seed.job, seed.model);
    check(is_small(plan), "the fuzzer executes its seeds");
    std::ofstream(fmt::format("{}/{}", argv[1], seed.name)) << to_json(plan);
  }
}
