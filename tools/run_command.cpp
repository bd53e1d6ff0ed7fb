#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>

#include "plans/error.h"
#include "runtime/comm/launch_environment.h"
#include "runtime/comm/messages.h"
#include "runtime/dry_run.h"
#include "runtime/executor.h"
#include "runtime/launch_ranks.h"
#include "simulator/simulate.h"
#include "tools/commands.h"
#include "tools/documents.h"
#include "tools/dry_run_text.h"
#include "tools/output_files.h"
#include "tools/prediction_text.h"
#include "tools/resume.h"
#include "tools/run_device.h"
#include "tools/run_process.h"
#include "tools/step_follower.h"
#include "tools/stop_signal.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

constexpr double kLongestTimeout = 86400;  // a day: a job that waits so long hangs

void expect_options(const RunOptions& options) {
  if (options.json && options.json_lines)
    throw InputError("command line: run: --json and --json-lines both want standard output");
  if (!(options.timeout_s > 0) || options.timeout_s > kLongestTimeout)
    throw InputError(
        fmt::format("command line: run: --timeout {}: expected seconds above 0, at most {}",
                    options.timeout_s, kLongestTimeout));
}

void expect_of_device(const RunOptions& options, const RunDevice& device) {
  // CUDA does not outlive a fork.
  if (device.kind != nullptr && options.processes)
    throw InputError(
        "command line: run: --processes goes with CPU ranks only; for a process per GPU start the "
        "ranks with mpirun, srun or torchrun");
}

/// The plan as ranks on that device can execute it.
LoadedPlan executable_plan(const JobFlags& flags, const Hardware& hardware,
                           const RunDevice& device) {
  JobFlags to_run = flags;
  to_run.use = JobUse::Run;
  LoadedPlan loaded = load_plan(to_run, hardware);
  if (is_torch(loaded.plan.profile))
    throw InputError(
        fmt::format("run: {} is executed by PyTorch itself; run executes engine native, --engine "
                    "native",
                    who_executes(loaded.plan.job, loaded.plan.profile)));
  const Job job = job_on(device, loaded.plan.job, hardware);
  if (job == loaded.plan.job) return loaded;
  std::string note = fmt::format(
      "Planned again from the job for {} ranks: profile {} on {}, instead of profile {} on {}.\n",
      device.name(), to_string(*job.strategy.profile), job.cluster.gpu.key,
      to_string(loaded.plan.profile), loaded.plan.job.cluster.gpu.key);
  return {verified_plan(job), loaded.note + note};
}

void print_what_runs(const LoadedPlan& loaded, const RunOptions& options, const RunDevice& device,
                     const char* what) {
  const Plan& plan = loaded.plan;
  if (is_for_people(options))
    fmt::print("{}Runs {} on {} {} ranks, which are {}.\n{}\n", device.note,
               who_executes(plan.job, plan.profile), plan.world_size(), device.name(), what,
               loaded.note);
}

/// The largest measured use of an arena.
Bytes measured_arena(const Report& measured) {
  Bytes largest = 0;
  for (const RankReport& rank : measured.ranks)
    largest = std::max(largest, rank.memory.peak_allocated_bytes.value_or(0));
  return largest;
}

/// A warning when training left the numbers.
std::string not_a_number_text(const Report& measured) {
  const auto lost = std::ranges::find_if(measured.steps, [](const StepReport& step) {
    return !std::isfinite(step.loss) || !std::isfinite(step.grad_norm);
  });
  if (lost == measured.steps.end()) return "";
  return fmt::format(
      "Warning: from step {} on, loss or gradient norm is not a finite number; the weights are of "
      "no use. Try a smaller learning rate, or clip_grad_norm.\n",
      lost->step);
}

std::string outcome_text(const Plan& plan, const Report& predicted, const Report& measured) {
  std::string text;
  if (measured.time && !measured.steps.empty())
    text += fmt::format(
        "{} steps in {}: {} a step, {} predicted; {}; loss {:.4f} at first, {:.4f} at "
        "last.\n",
        measured.steps.size(), duration_text(measured.time->total_s.value_or(0)),
        format_seconds(measured.time->step_s),
        predicted.time ? format_seconds(predicted.time->step_s) : "-",
        rate_text(measured.time->tokens_per_s), unsigned_nan(measured.steps.front().loss),
        unsigned_nan(measured.steps.back().loss));
  return text + fmt::format("Memory of a rank: {} measured, {} predicted.\n",
                            format_bytes(measured_arena(measured)), format_bytes(plan.arena.bytes));
}

bool writes_weights(const Plan& plan, const Report& measured) {
  return measured.rehearsal.empty() &&
         std::ranges::any_of(plan.instructions, [](const Instruction& instruction) {
           const auto* write = std::get_if<Write>(&instruction.operation);
           return write != nullptr && write->sink == Sink::Weights;
         });
}

void write_results(const Plan& plan, const Report& predicted, const Report& measured) {
  const std::filesystem::path folder = plan.job.run.output;
  write_file((folder / "plan.json").string(), to_json(plan));
  write_file((folder / "prediction.json").string(), prediction_json(predicted, plan));
  write_file((folder / "run.json").string(), measurement_json(measured, plan));
}

bool fits_or_says_so(const Plan& plan, std::int64_t ranks, const RunOptions& options,
                     const RunDevice& device) {
  if (device.kind != nullptr) return true;  // it says so itself, before anything runs
  const MachineFit fit = fit_on_this_machine(plan, ranks);
  if (!fit.fits())
    fmt::print(is_for_people(options) ? stdout : stderr,
               "Does not fit: {} ranks need {}, this machine has {} of memory available.\n", ranks,
               format_bytes(fit.needed), format_bytes(*fit.available));
  return fit.fits();
}

/// How the ranks of a job are executed; rank 0 hands its steps on.
using Execution = std::function<Report(const ExecuteOptions&)>;

/// A request may have ended it before its last step.
bool is_complete(const Plan& plan, const Report& measured) {
  return measured.steps.empty() || measured.steps.back().step == plan.job.run.steps;
}

void print_results(const Plan& plan, const RunOptions& options, const Report& predicted,
                   const Report& measured) {
  fmt::print(stderr, "{}", not_a_number_text(measured));
  if (options.json) fmt::print("{}\n", measurement_json(measured, plan));
  if (!is_for_people(options)) return;
  const bool complete = is_complete(plan, measured);
  if (!complete)
    fmt::print("\nStopped as asked, after step {} of {}; --resume auto goes on from there.\n",
               measured.steps.back().step, plan.job.run.steps);
  fmt::print("\n{}Wrote metrics.jsonl, run.json, plan.json, prediction.json{} to {}.\n",
             outcome_text(plan, predicted, measured),
             writes_weights(plan, measured) && complete ? " and the weights" : "",
             plan.job.run.output);
}

void print_times(const std::vector<CollectiveTime>& times, const RunOptions& options) {
  if (options.json)
    fmt::print("{}\n", dry_run_json(times));
  else
    fmt::print("All ranks are connected; nothing was trained.\n{}", dry_run_text(times));
}

DryRunOptions dry_run_options(const RunOptions& options, const RunDevice& device) {
  return {device.kind ? *device.kind : cpu_devices(), options.timeout_s};
}

/// What the ranks are told, with the checkpoint that they go on from.
ExecuteOptions execute_options(const RunOptions& options, const RunDevice& device,
                               const std::string& checkpoint) {
  return {.device = device.kind,
          .collective_timeout_s = options.timeout_s,
          .resume = checkpoint,
          .stop_requested = stop_on_sigterm()};
}

/// Executes the plan, and tells what came of it, on screen and in files.
int run_and_tell(const LoadedPlan& loaded, const RunOptions& options, const Hardware& hardware,
                 const RunDevice& device, const std::string& checkpoint,
                 const Execution& execution) {
  const Plan& plan = loaded.plan;
  const FolderLock lock(plan.job.run.output);
  if (!options.resume.empty() && is_for_people(options))
    fmt::print("{}.\n", checkpoint.empty() ? "There is no checkpoint yet: begins with step 1"
                                           : "Goes on from " + checkpoint);
  Report predicted = simulate(plan, hardware.costs(plan.profile));
  predicted.plan_hash = hash_of(plan);
  StepFollower follower(plan, options);
  ExecuteOptions told = execute_options(options, device, checkpoint);
  told.on_step = [&](const StepReport& step) { follower.on_step(step); };
  const Report measured = execution(told);
  follower.finish();
  write_results(plan, predicted, measured);
  print_results(plan, options, predicted, measured);
  return kYes;
}

/// This process's part of a job whose ranks are processes.
int run_rank(ProcessWorld& world, const LoadedPlan& loaded, const RunOptions& options,
             const Hardware& hardware, const RunDevice& device) {
  const Plan& plan = loaded.plan;
  const auto all = communicator_of_all(world, plan);
  expect_same_everywhere(*all, plan);
  if (options.dry_run) {
    const std::vector<CollectiveTime> times =
        time_collectives(plan, dry_run_options(options, device), world);
    if (world.rank() == 0) print_times(times, options);
    return kYes;
  }
  const bool tells = world.rank() == 0;
  const std::string checkpoint =
      broadcast_text(*all, tells ? checkpoint_to_resume(options.resume, plan.job.run) : "");
  const Execution execution = [&](const ExecuteOptions& told) {
    return execute(plan, told, world);
  };
  if (tells) return run_and_tell(loaded, options, hardware, device, checkpoint, execution);
  execution(execute_options(options, device, checkpoint));
  return kYes;
}

/// One rank of a world, from "5/512".
struct RehearsedRank {
  int rank = 0;
  int world = 1;
};

RehearsedRank rehearsed_rank(const RunOptions& options) {
  if (options.processes || options.dry_run || !options.resume.empty())
    throw InputError(
        "command line: run: --rehearse goes with none of --processes, --dry-run and --resume");
  const std::size_t slash = options.rehearse.find('/');
  if (slash == std::string::npos)
    throw InputError(fmt::format(
        "command line: run: --rehearse {}: expected RANK/WORLD, e.g. 5/512", options.rehearse));
  const RehearsedRank one{.world = count_of("--rehearse", options.rehearse.substr(slash + 1))};
  const std::string rank = options.rehearse.substr(0, slash);
  const int number = rank == "0" ? 0 : count_of("--rehearse", rank);
  if (number >= one.world)
    throw InputError(fmt::format("command line: run: --rehearse {}: ranks are 0 to {}",
                                 options.rehearse, one.world - 1));
  return {number, one.world};
}

int rehearse_rank(const RunOptions& options, const Hardware& hardware, const RunDevice& device) {
  const RehearsedRank one = rehearsed_rank(options);
  JobFlags flags = options.job;
  flags.gpus = std::to_string(one.world);
  const LoadedPlan loaded = executable_plan(flags, hardware, device);
  const Plan& plan = loaded.plan;
  if (is_for_people(options))
    fmt::print(
        "Rehearses rank {} of {} alone, with {}: memory and compute are real, losses are "
        "not.\n{}{}\n",
        one.rank, one.world, who_executes(plan.job, plan.profile), device.note, loaded.note);
  if (!fits_or_says_so(plan, 1, options, device)) return kNo;
  return run_and_tell(loaded, options, hardware, device, "",
                      [&](const ExecuteOptions& told) { return rehearse(plan, told, one.rank); });
}

/// The ranks were started by somebody else; this process is one of them.
int run_launched(const ProcessPlace& place, const RunOptions& options, const Hardware& hardware,
                 const RunDevice& device) {
  if (options.processes)
    throw InputError(fmt::format("command line: run: --processes: {} has started the ranks already",
                                 place.launcher));
  return run_process(place, Socket(), options.timeout_s, [&](ProcessWorld& world) {
    const LoadedPlan loaded = executable_plan(options.job, hardware, device);
    if (world.rank() == 0)
      print_what_runs(loaded, options, device,
                      world.place().mpi ? "processes over MPI" : "processes");
    return run_rank(world, loaded, options, hardware, device);
  });
}

int launch_and_run(const LoadedPlan& loaded, const RunOptions& options, const Hardware& hardware,
                   const RunDevice& device) {
  Launched launched = launch_ranks(loaded.plan.world_size(), 2 * options.timeout_s);
  if (!launched.place) return launched.status;
  return run_process(
      *launched.place, std::move(launched.listener), options.timeout_s,
      [&](ProcessWorld& world) { return run_rank(world, loaded, options, hardware, device); });
}

}  // namespace

int run_command(const RunOptions& options) {
  expect_options(options);
  const Hardware hardware = Hardware::read(data_folder());
  const RunDevice device = device_of(options.device);
  expect_of_device(options, device);
  if (!options.rehearse.empty()) return rehearse_rank(options, hardware, device);
  if (const auto place = launched_place()) return run_launched(*place, options, hardware, device);
  const LoadedPlan loaded = executable_plan(options.job, hardware, device);
  const Plan& plan = loaded.plan;
  print_what_runs(loaded, options, device, options.processes ? "processes" : "threads");
  if (!fits_or_says_so(plan, plan.world_size(), options, device)) return kNo;
  if (options.processes) return launch_and_run(loaded, options, hardware, device);
  if (options.dry_run) {
    print_times(time_collectives(plan, dry_run_options(options, device)), options);
    return kYes;
  }
  const std::string checkpoint = checkpoint_to_resume(options.resume, plan.job.run);
  return run_and_tell(loaded, options, hardware, device, checkpoint,
                      [&](const ExecuteOptions& told) { return execute(plan, told); });
}

}  // namespace shardplan
