#include "tests/oracle/mutants.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "planner/model.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "plans/verify.h"
#include "runtime/executor.h"
#include "tests/models/tiny_models.h"
#include "tests/oracle/mutation.h"

namespace shardplan::oracle {
namespace {

constexpr testing::TinyLlama kSizes{
    .layers = 2, .channels = 8, .heads = 2, .kv_heads = 1, .ffn = 12, .vocab = 19};
constexpr int kSteps = 2;
constexpr std::uint64_t kSeeds[]{1, 2};
constexpr double kRounding = 1e-4;  // of sums of float32 that differ in their order
constexpr int kShown = 20;

/// Files of one campaign; gone with it.
class Workplace {
 public:
  Workplace()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("shardplan-mutants-{}", getpid())) {
    std::filesystem::create_directories(folder_);
    std::ofstream tokens(folder_ / "tokens.bin", std::ios::binary);
    for (int i = 0; i < 600; ++i)
      tokens.put(static_cast<char>(i * i % kSizes.vocab)).put(0);
  }
  ~Workplace() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string tokens() const { return (folder_ / "tokens.bin").string(); }
  std::string output() const { return (folder_ / "out").string(); }

 private:
  std::filesystem::path folder_;
};

/// What a run trained: losses, norms, weights and optimizer states, over all seeds.
struct Trained {
  std::vector<double> numbers;
  std::vector<float> values;
  std::string error;
};

std::vector<float> floats_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::uint64_t header = 0;
  if (bytes.size() < sizeof(header)) return {};
  std::copy_n(bytes.data(), sizeof(header), reinterpret_cast<char*>(&header));
  std::vector<float> values((bytes.size() - sizeof(header) - header) / sizeof(float));
  std::copy_n(bytes.data() + sizeof(header) + header, values.size() * sizeof(float),
              reinterpret_cast<char*>(values.data()));
  return values;
}

Trained train(Plan plan, const Workplace& place) {
  Trained result;
  for (const std::uint64_t seed : kSeeds) {
    plan.job.run = {
        .tokens = place.tokens(), .steps = kSteps, .seed = seed, .output = place.output()};
    std::map<std::string, std::vector<float>> states;
    ExecuteOptions options{.threads_per_rank = 1, .measure_memory = false};
    options.optimizer_state = &states;
    try {
      for (const StepReport& step : execute(plan, options).steps)
        result.numbers.insert(result.numbers.end(), {step.loss, step.grad_norm});
      for (const auto& [name, values] : states)
        result.values.insert(result.values.end(), values.begin(), values.end());
      const std::vector<float> weights = floats_of_file(place.output() + "/model.safetensors");
      result.values.insert(result.values.end(), weights.begin(), weights.end());
    } catch (const std::runtime_error& error) {
      result.error = error.what();
    }
  }
  return result;
}

bool close(const Trained& a, const Trained& b) {
  const auto near = [](double x, double y) {
    return std::abs(x - y) <= kRounding * (1e-3 + std::abs(x) + std::abs(y));
  };
  return std::ranges::equal(a.numbers, b.numbers, near) &&
         std::ranges::equal(a.values, b.values, near);
}

/// Mutants that may sum the same terms in another order.
bool changes_order(const Mutant& mutant) {
  return mutant.kind == "reordered" || mutant.kind == "operands swapped";
}

struct Tally {
  int mutants = 0;
  int caught = 0;
  int harmless = 0;   // the same bits
  int reordered = 0;  // the same up to rounding: sums in another order
  int survived() const { return mutants - caught - harmless - reordered; }
};

class Campaign {
 public:
  explicit Campaign(int every) : every_(every) {}

  void run(const std::string& name, const Plan& plan) {
    check(verify(plan).empty(), "the planner's plan is right");
    const Trained right = train(plan, place_);
    check(right.error.empty(), right.error);
    for_each_mutant(plan, [&](const Mutant& mutant) {
      if (count_++ % every_ == 0) judge(name, mutant, right);
    });
  }

  const std::map<std::string, Tally>& tallies() const { return tallies_; }
  const std::vector<std::string>& survivors() const { return survivors_; }

 private:
  void judge(const std::string& name, const Mutant& mutant, const Trained& right) {
    Tally& tally = tallies_[mutant.kind];
    ++tally.mutants;
    if (!verify(mutant.plan).empty()) {
      ++tally.caught;
      return;
    }
    const Trained trained = train(mutant.plan, place_);
    if (trained.error.empty() && trained.numbers == right.numbers && trained.values == right.values)
      ++tally.harmless;
    else if (trained.error.empty() && changes_order(mutant) && close(trained, right))
      ++tally.reordered;
    else
      survivors_.push_back(
          fmt::format("{}: {} {} {}", name, mutant.what, mutant.kind, trained.error));
  }

  const int every_;
  Workplace place_;
  std::map<std::string, Tally> tallies_;
  std::vector<std::string> survivors_;
  int count_ = 0;
};

struct Case {
  std::string name;
  Job job;
  ModelGraph model;
};

/// A model with positions, LayerNorm, biases, packed attention and GELU.
ModelGraph tiny_gpt2() {
  return model_from_config(
      R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8,
          "vocab_size": 19})",
      "gpt2");
}

Case one_case(std::string name, Strategy strategy, int world, ModelGraph model) {
  Case result{std::move(name), testing::tiny_job(strategy, world), std::move(model)};
  result.job.strategy.profile = Profile::CpuReference;
  result.job.training.sequence_length = 4;
  return result;
}

testing::TinyLlama one_block() {
  testing::TinyLlama sizes = kSizes;
  sizes.layers = 1;
  return sizes;
}

std::vector<Case> strategies() {
  testing::TinyLlama tied = kSizes;
  tied.tied = true;
  std::vector<Case> cases{
      one_case("one rank, SGD", Strategy::NoShard, 1, testing::tiny_llama(kSizes)),
      one_case("NO_SHARD, tied", Strategy::NoShard, 2, testing::tiny_llama(tied)),
      one_case("DDP", Strategy::Ddp, 2, testing::tiny_llama(kSizes)),
      one_case("SHARD_GRAD_OP on 3", Strategy::ShardGradOp, 3, testing::tiny_llama(kSizes)),
      one_case("FULL_SHARD, tied", Strategy::FullShard, 2, testing::tiny_llama(tied)),
      one_case("gpt2", Strategy::FullShard, 2, tiny_gpt2())};
  cases[0].job.training.optimizer.name = OptimizerJob::Name::Sgd;
  cases[0].job.training.optimizer.momentum = 0.9;
  cases[2].job.strategy.ddp.bucket_cap_mb = 0.001;
  return cases;
}

std::vector<Case> settings() {
  const ModelGraph model = testing::tiny_llama(one_block());
  std::vector<Case> cases{
      one_case("accumulated, reduced at every micro-step, by rows", Strategy::FullShard, 2, model),
      one_case("accumulated, reduced at the last micro-step", Strategy::NoShard, 2, model),
      one_case("hybrid, recomputed", Strategy::HybridShard, 2, model),
      one_case("bfloat16, some decay", Strategy::FullShard, 2, model),
      one_case("spans of 2", Strategy::FullShard, 4, model),
      one_case("loss in chunks", Strategy::FullShard, 2, model)};
  for (const int accumulated : {0, 1})
    cases[accumulated].job.training.gradient_accumulation.steps = 3;
  cases[0].job.strategy.layout = Layout::PerParameter;
  cases[1].job.training.gradient_accumulation.sync = GradientAccumulation::Sync::Last;
  cases[2].job.cluster.nodes = 2;
  cases[2].job.training.activation_checkpointing.kind = ActivationCheckpointing::Kind::Full;
  cases[3].job.strategy.mixed_precision =
      MixedPrecision{.param = Dtype::BFloat16, .reduce = Dtype::BFloat16};
  cases[3].job.training.optimizer.decay = OptimizerJob::Decay::Matrices;
  cases[4].job.strategy.reshard_after_forward = ReshardAfterForward{.ranks = 2};
  cases[5].job.training.loss_chunks = 3;
  return cases;
}

void print(const Campaign& campaign) {
  fmt::print("{:24} {:>8} {:>8} {:>10} {:>14} {:>9}\n", "kind", "mutants", "caught", "same bits",
             "same sums", "neither");
  Tally all;
  for (const auto& [kind, tally] : campaign.tallies()) {
    fmt::print("{:24} {:>8} {:>8} {:>10} {:>14} {:>9}\n", kind, tally.mutants, tally.caught,
               tally.harmless, tally.reordered, tally.survived());
    all = {all.mutants + tally.mutants, all.caught + tally.caught, all.harmless + tally.harmless,
           all.reordered + tally.reordered};
  }
  fmt::print("{:24} {:>8} {:>8} {:>10} {:>14} {:>9}\n", "all", all.mutants, all.caught,
             all.harmless, all.reordered, all.survived());
  for (std::size_t i = 0; i < campaign.survivors().size() && i < kShown; ++i)
    fmt::print("neither: {}\n", campaign.survivors()[i]);
}

void print_json(const Campaign& campaign) {
  nlohmann::json object{{"kinds", nlohmann::json::object()}, {"neither", campaign.survivors()}};
  for (const auto& [kind, tally] : campaign.tallies())
    object["kinds"][kind] = {{"mutants", tally.mutants},
                             {"caught", tally.caught},
                             {"same_bits", tally.harmless},
                             {"same_sums", tally.reordered}};
  fmt::print("{}\n", object.dump());
}

}  // namespace

int mutants(const MutantsOptions& options) {
  Campaign campaign(options.every);
  for (const auto& cases : {strategies(), settings()})
    for (const Case& one : cases)
      campaign.run(one.name, make_plan(one.job, one.model));
  if (options.form == Scorecard::Form::Json)
    print_json(campaign);
  else
    print(campaign);
  return campaign.survivors().empty() ? 0 : 1;
}

}  // namespace shardplan::oracle
