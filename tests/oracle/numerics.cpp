#include "tests/oracle/numerics.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "plans/verify.h"
#include "runtime/safetensors.h"
#include "runtime/tokens.h"
#include "simulator/simulate.h"
#include "tests/oracle/execution.h"
#include "tests/oracle/numerics_case.h"
#include "tests/oracle/numerics_checks.h"
#include "tests/oracle/numerics_twins.h"

namespace shardplan::oracle {
namespace {

namespace fs = std::filesystem;

/// A folder of this process that goes with it.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(fs::temp_directory_path() / fmt::format("shardplan_oracle.{}", getpid())) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Writes the labels of numerics/README.md: target p of sequence i is token i*T + p + 1, and not
/// counted when (31 i + 17 p) mod 7 < i mod 5. Returns the path.
std::string write_masked_labels(const Job& job, const fs::path& folder) {
  const std::int64_t time = job.training.sequence_length;
  const TokenFile tokens(job.run.tokens, "tokens", job.run.token_dtype, time);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(tokens.tokens()), kIgnoredTarget);
  const std::span<std::int32_t> targets = std::span(labels).subspan(1);
  for (std::int64_t i = 0; i < tokens.sequences(); ++i) {
    tokens.read(i, 1, std::numeric_limits<std::int32_t>::max(), targets.subspan(i * time, time));
    for (std::int64_t p = 0; p < time; ++p)
      if ((31 * i + 17 * p) % 7 < i % 5) targets[i * time + p] = kIgnoredTarget;
  }
  const fs::path path = folder / "labels.bin";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(labels.data()),
             static_cast<std::streamsize>(labels.size() * sizeof(labels.front())));
  if (!file.flush()) throw SystemError(path.string() + ": cannot be written");
  return path.string();
}

Plan verified_plan(const Job& job) {
  Plan plan = make_plan(job);
  const std::vector<Fault> faults = verify(plan);
  if (!faults.empty()) {
    throw InputError(fmt::format("the plan has {} faults, the first: {} {}: {}", faults.size(),
                                 faults.front().instruction, faults.front().buffer,
                                 faults.front().why));
  }
  return plan;
}

Training train(const Plan& plan, const Execution& execution) {
  Training training{.report = execution(plan, nullptr), .weights = {}};
  const SafeTensors written(plan.job.run.output);
  for (const Unit& unit : plan.units) {
    for (const UnitParameter& parameter : unit.parameters) {
      const SafeTensor* tensor = written.find(parameter.name);
      if (tensor == nullptr) continue;
      std::vector<float>& values = training.weights[parameter.name];
      values.resize(static_cast<std::size_t>(tensor->elements()));
      read_elements(*tensor, 0, values);
    }
  }
  return training;
}

/// The gradient of the first step, summed over its micro-steps: with SGD the momentum buffer after
/// one step is exactly that.
TensorsByName first_gradient(Job job, const Execution& execution) {
  job.run.steps = 1;
  job.training.clip_grad_norm.reset();
  job.training.optimizer = {
      .name = OptimizerJob::Name::Sgd, .lr = 0.1, .weight_decay = 0, .momentum = 0.9};
  TensorsByName state;
  execution(verified_plan(job), &state);

  const std::string suffix = ".momentum_buffer";
  TensorsByName gradient;
  for (auto& [name, values] : state) {
    if (name.ends_with(suffix)) {
      gradient[name.substr(0, name.size() - suffix.size())] = std::move(values);
    }
  }
  return gradient;
}

/// Ways to train the same numbers of which the oracle has no case.
struct Variant {
  const char* name;
  void (*apply)(Job&);
};
constexpr std::array kVariants{
    Variant{"two replicas of two shards",
            [](Job& job) {
              job.strategy.sharding = Strategy::HybridShard;
              job.strategy.shard_group = 2;
            }},
    Variant{"parameters kept in pairs of ranks",
            [](Job& job) { job.strategy.reshard_after_forward = ReshardAfterForward{.ranks = 2}; }},
    Variant{"the other layout",
            [](Job& job) {
              const bool rows = job.strategy.layout == Layout::PerParameter;
              job.strategy.layout = rows ? Layout::Flat : Layout::PerParameter;
            }},
    Variant{"wrapped by size",
            [](Job& job) {
              job.strategy.wrap = {.kind = WrapPolicy::Kind::Size, .min_params = 10'000};
            }},
    Variant{"loss in chunks", [](Job& job) { job.training.loss_chunks = 3; }},
};

/// Four ranks can be grouped in more than one way.
bool has_variants(const Job& job) {
  return job.world_size() == 4 && job.strategy.sharding == Strategy::FullShard &&
         !job.strategy.reshard_after_forward;
}

std::vector<Check> checks_of(const NumericsCase& one, Job job, const CostConstants& costs,
                             const NumericsOptions& options) {
  const fs::path folder = job.run.output;
  const Execution execution = [&](const Plan& plan, TensorsByName* state) {
    return options.processes ? execute_in_processes(plan, state, folder)
                             : execute_in_threads(plan, state, options.device);
  };
  const Plan plan = verified_plan(job);
  const Training training = train(plan, execution);
  std::vector<Check> checks = against_pytorch(one, training);
  const auto add = [&](const std::vector<Check>& more) {
    checks.insert(checks.end(), more.begin(), more.end());
  };
  add(gradient_against_pytorch(one, first_gradient(job, execution)));
  add(memory_as_predicted(plan, simulate(plan, costs), training.report));
  if (options.once) return checks;
  checks.push_back(same_bits("repeated run", training, train(plan, execution)));
  if (options.processes)
    checks.push_back(
        same_bits("as threads", training, train(plan, [](const Plan& same, TensorsByName* state) {
                    return execute_in_threads(same, state);
                  })));
  for (const Twin& twin : twins_of(plan, folder))
    checks.push_back(same_bits(twin.name, training, train(verified_plan(twin.job), execution)));
  for (const Variant& variant : kVariants) {
    if (!has_variants(job)) break;
    Job other = job;
    variant.apply(other);
    const Plan varied = verified_plan(other);
    const Training trained = train(varied, execution);
    std::vector<Check> more = against_pytorch(one, trained);
    std::ranges::move(memory_as_predicted(varied, simulate(varied, costs), trained.report),
                      std::back_inserter(more));
    for (Check& check : more)
      check.what = fmt::format("{}: {}", variant.name, check.what);
    add(more);
  }
  return checks;
}

Outcome outcome_of(const NumericsCase& one, const NumericsOptions& options, const fs::path& output,
                   const CostConstants& costs) {
  Outcome outcome{.name = one.name, .checks = {}, .error = {}, .skipped = one.not_supported};
  if (!outcome.skipped.empty()) return outcome;
  Job job = one.job;
  if (const int devices = options.device ? options.device->count() : -1;
      devices >= 0 && devices < job.world_size()) {
    outcome.skipped = fmt::format("{} ranks need a {} device each, this machine has {}",
                                  job.world_size(), options.device->name, devices);
    return outcome;
  }
  job.strategy.profile = options.profile;
  job.run.output = output.string();
  try {
    if (one.masked) job.run.labels = write_masked_labels(job, output);
    outcome.checks = checks_of(one, job, costs, options);
  } catch (const InputError& error) {
    outcome.error = error.what();
  } catch (const SystemError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

}  // namespace

int numerics(const NumericsOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  const TemporaryFolder output;
  std::vector<NumericsCase> cases = read_numerics_cases(options.folder, hardware);
  std::erase_if(cases, [&](const NumericsCase& one) {
    return one.name.find(options.filter) == std::string::npos;
  });
  if (cases.empty()) {
    throw InputError(
        fmt::format("{}: no case has \"{}\" in its name", options.folder.string(), options.filter));
  }
  Scorecard scorecard(options.form);
  for (const NumericsCase& one : cases) {
    scorecard.add(outcome_of(one, options, output.path(), hardware.costs(options.profile)));
  }
  return scorecard.close();
}

}  // namespace shardplan::oracle
