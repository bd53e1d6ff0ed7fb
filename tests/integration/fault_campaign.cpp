// Kills a rank, or lets it hang, at a seeded instruction, and looks what becomes of the job.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/planner.h"
#include "plans/error.h"
#include "runtime/checkpoint.h"
#include "runtime/comm/process_communicator.h"
#include "runtime/executor.h"
#include "runtime/launch_ranks.h"
#include "tests/models/tiny_models.h"

namespace shardplan::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 4;
constexpr Seconds kTimeout_s = 5;  // of collectives
// A rank that hangs: the time-out, the launcher's farewell of 5 s, and as much for start and end on
// a busy machine.
constexpr Seconds kBound_s = 4 * kTimeout_s;

/// Where a rank is stopped for good.
struct Fault {
  Strategy sharding = Strategy::FullShard;
  int world = 2;
  int checkpoint_every = 1;
  int rank = 0;
  int step = 0;  // from 0; what comes before the steps and after them counts as the first, the last
  InstructionId instruction = 0;
  int signal = SIGKILL;
};

/// What a job left behind.
struct Outcome {
  int status = 0;
  std::string errors;
  Seconds seconds = 0;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Campaign {
 public:
  explicit Campaign(fs::path folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    std::ofstream tokens(tokens_file(), std::ios::binary);
    for (int i = 0; i < 4000; ++i)
      tokens << static_cast<char>(i * i % 251) << '\0';
  }
  ~Campaign() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;

  const Plan& plan(const Fault& fault) {
    const auto key = std::tuple(fault.sharding, fault.world, fault.checkpoint_every);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    Job job = tiny_job(fault.sharding, fault.world);
    job.run.steps = kSteps;
    job.run.checkpoint_every = fault.checkpoint_every;
    job.run.tokens = tokens_file().string();
    job.run.output = (folder_ / "out").string();
    return plans_.emplace(key, make_plan(job, tiny_llama({.layers = 1}))).first->second;
  }

  /// Empty when the job ended as it should, and its successor with the weights of an undisturbed
  /// one.
  std::string wrong_with(const Fault& fault) {
    const Plan& plan = this->plan(fault);
    const std::string& expected = undisturbed(fault, plan);
    fs::remove_all(plan.job.run.output);
    const Outcome broken = run(plan, "", &fault);
    if (broken.status != 3) return fmt::format("ended with status {}", broken.status);
    if (broken.seconds > kBound_s) return fmt::format("took {:.1f} s", broken.seconds);
    if (waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD) return "left a process behind";
    if (const std::string wrong = wrong_with(broken.errors, fault); !wrong.empty()) return wrong;
    const auto checkpoints = checkpoints_in(checkpoint_folder(plan.job.run.output));
    resumed_ += checkpoints.empty() ? 0 : 1;
    const Outcome after = run(plan, checkpoints.empty() ? "" : checkpoints.front(), nullptr);
    if (after.status != 0) return fmt::format("does not go on: {}", after.errors);
    return weights(plan) == expected ? "" : "goes on to other weights";
  }

  int resumed() const { return resumed_; }

 private:
  fs::path tokens_file() const { return folder_ / "tokens.bin"; }
  static std::string weights(const Plan& plan) {
    return text_of(fs::path(plan.job.run.output) / "model.safetensors");
  }

  const std::string& undisturbed(const Fault& fault, const Plan& plan) {
    std::string& weights_text = weights_[{fault.sharding, fault.world}];
    if (weights_text.empty()) {
      fs::remove_all(plan.job.run.output);
      const Outcome outcome = run(plan, "", nullptr);
      check(outcome.status == 0, "an undisturbed job ends well");
      weights_text = weights(plan);
    }
    return weights_text;
  }

  /// One line, which names the rank and where another one was when it noticed.
  static std::string wrong_with(const std::string& errors, const Fault& fault) {
    const bool one_line = std::ranges::count(errors, '\n') == 1;
    // "waited 5 s in all_gather for rank 1, 2"
    const std::string number = std::to_string(fault.rank);
    const bool names_rank = errors.find("rank " + number) != std::string::npos ||
                            (errors.find("waited") != std::string::npos &&
                             errors.find(", " + number) != std::string::npos);
    const bool names_place = errors.find("instruction '") != std::string::npos ||
                             errors.find("stream host") != std::string::npos ||
                             errors.find("was ended by signal") != std::string::npos;
    return one_line && names_rank && names_place ? "" : fmt::format("says: {}", errors);
  }

  Outcome run(const Plan& plan, const std::string& checkpoint, const Fault* fault) {
    const auto begin = std::chrono::steady_clock::now();
    const fs::path said = folder_ / "errors";
    std::ofstream(said).close();
    Outcome outcome;
    try {
      Launched launched = launch_ranks(plan.world_size(), 2 * kTimeout_s);
      if (launched.place) {
        const int status = run_rank(plan, std::move(launched), checkpoint, fault, said);
        std::_Exit(status);
      }
      outcome.status = launched.status;
      outcome.errors = text_of(said);
    } catch (const SystemError& error) {
      outcome.status = 3;
      outcome.errors = fmt::format("{}\n", error.what());
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    outcome.seconds = taken.count();
    return outcome;
  }

  /// One rank's process, to its end.
  static int run_rank(const Plan& plan, Launched launched, const std::string& checkpoint,
                      const Fault* fault, const fs::path& said) {
    ProcessWorld world(*launched.place, std::move(launched.listener), kTimeout_s);
    ExecuteOptions options;
    options.resume = checkpoint;
    if (fault != nullptr && fault->rank == world.rank())
      options.before_instruction = [&](InstructionId id, int step) {
        if (id == fault->instruction && step >= fault->step) kill(getpid(), fault->signal);
      };
    try {
      execute(plan, options, world);
      return 0;
    } catch (const std::exception& error) {
      if (const auto text = world.report(error.what()))
        std::ofstream(said, std::ios::app) << *text << '\n';
      return 3;
    }
  }

  const fs::path folder_;
  std::map<std::tuple<Strategy, int, int>, Plan> plans_;
  std::map<std::pair<Strategy, int>, std::string> weights_;
  int resumed_ = 0;
};

Fault draw(std::mt19937_64& random, Campaign& campaign) {
  const auto below = [&](std::size_t end) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(end));
  };
  constexpr std::array kStrategies{Strategy::Ddp, Strategy::NoShard, Strategy::ShardGradOp,
                                   Strategy::FullShard};
  Fault fault;
  fault.sharding = kStrategies[below(kStrategies.size())];
  fault.world = 2 + below(3);
  fault.checkpoint_every = 1 + below(2);
  fault.rank = below(fault.world);
  const Plan& plan = campaign.plan(fault);
  fault.instruction = below(plan.instructions.size());
  const Phase phase = plan.instructions[fault.instruction].phase;
  if (phase != Phase::Load && phase != Phase::Init) fault.step = below(kSteps);
  // A rank that hangs costs the others a time-out.
  if (below(20) == 0) fault.signal = SIGSTOP;
  return fault;
}

int run_campaign(int points, std::uint64_t seed) {
  Campaign campaign(fs::temp_directory_path() / fmt::format("shardplan_faults.{}", getpid()));
  std::mt19937_64 random(seed);
  int failed = 0;
  for (int point = 0; point < points; ++point) {
    const Fault fault = draw(random, campaign);
    const std::string wrong = campaign.wrong_with(fault);
    if (wrong.empty()) continue;
    ++failed;
    fmt::print("point {} of seed {}: {} on {} ranks, rank {} {} at {} in step {}: {}\n", point,
               seed, to_string(fault.sharding), fault.world, fault.rank,
               fault.signal == SIGKILL ? "killed" : "hangs",
               campaign.plan(fault).instructions[fault.instruction].name, fault.step + 1, wrong);
  }
  fmt::print("{} passed, {} failed; {} went on from a checkpoint\n", points - failed, failed,
             campaign.resumed());
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace shardplan::testing

int main(int argc, char** argv) {
  CLI::App app("Stops ranks at seeded instructions and looks what becomes of their jobs.");
  int points = 500;
  std::uint64_t seed = 1;
  app.add_option("--points", points, "how many faults")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "of their choice");
  CLI11_PARSE(app, argc, argv);
  return shardplan::testing::run_campaign(points, seed);
}
