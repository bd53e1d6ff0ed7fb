#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "plans/error.h"
#include "plans/names.h"
#include "tools/commands.h"
#include "tools/numbers.h"

namespace shardplan {
namespace {

/// A command of the program: its options in CLI11, and what runs with them.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

struct AllOptions {
  PlanOptions plan;
  CompareOptions compare;
  FitOptions fit;
  SearchCommandOptions search;
  SimulateCommandOptions simulate;
  RunOptions run;
  CheckOptions check;
  ReportOptions report;
  VerifyOptions verify;
  ImportCommandOptions imported;
  ScoreOptions score;
  CalibrateOptions calibrate;
};

void add_json(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "one JSON object on standard output");
}

/// The flags that override single fields of a job.
void add_job(CLI::App& app, JobFlags& job, const char* path, const char* path_help) {
  app.add_option(path, job.path, path_help);
  for (const FieldFlag& flag : kFieldFlags)
    app.add_option_function<std::string>(
           std::string(flag.flag),
           [&job, &flag](const std::string& value) {
             for (Setting& setting : settings_of(flag, value))
               job.settings.push_back(std::move(setting));
           },
           fmt::format("{} ({})", flag.help, flag.field))
        ->type_name(std::string(flag.value));
  app.add_option("--nodes", job.nodes, "nodes of the cluster")->type_name("N");
  app.add_option_function<std::vector<std::string>>(
         "--set",
         [&job](const std::vector<std::string>& settings) {
           job.settings.insert(job.settings.end(), settings.begin(), settings.end());
         },
         "any field of the job, e.g. training.optimizer.lr=1e-3; repeatable")
      ->type_name("FIELD=VALUE")
      ->allow_extra_args(false);
}

void add_gpus(CLI::App& app, JobFlags& job) {
  app.add_option("--gpus", job.gpus, "GPUs in all: one node if they fit in it, else whole nodes")
      ->type_name("N");
}

void add_strategies(CLI::App& app, std::vector<std::string>& strategies) {
  app.add_option("--strategies", strategies,
                 "which, e.g. DDP,FULL_SHARD (default DDP,SHARD_GRAD_OP,FULL_SHARD, and "
                 "HYBRID_SHARD with several nodes; of DeepSpeed DDP and ZERO_1 to 3)")
      ->type_name("A,B")
      ->delimiter(',')
      ->allow_extra_args(false);
}

Command add_plan(CLI::App& program, PlanOptions& options) {
  CLI::App* app =
      program.add_subcommand("plan", "Builds and verifies the plan of a job; tells what it needs");
  add_job(*app, options.job, "JOB", "job file (YAML)");
  add_gpus(*app, options.job);
  app->add_option("-o", options.output, "where to write the plan")->type_name("FILE");
  add_json(*app, options.json);
  return {app, [&] { return plan_command(options); }};
}

Command add_compare(CLI::App& program, CompareOptions& options) {
  CLI::App* app = program.add_subcommand("compare", "Compares the strategies for a job");
  add_job(*app, options.job, "JOB", "job file (YAML)");
  add_gpus(*app, options.job);
  add_strategies(*app, options.strategies);
  app->add_option("--tokens", options.tokens,
                  "tokens to train on, for time and cost in all, e.g. 15e12")
      ->type_name("T");
  app->add_option("--require", options.require, "exit 1 unless this strategy fits")
      ->type_name("STRATEGY");
  add_json(*app, options.json);
  return {app, [&] { return compare_command(options); }};
}

Command add_fit(CLI::App& program, FitOptions& options) {
  CLI::App* app =
      program.add_subcommand("fit", "Finds the largest batch, sequence or model that fits");
  add_job(*app, options.job, "JOB", "job file (YAML)");
  add_gpus(*app, options.job);
  app->add_option("--maximize", options.maximize, "micro_batch, sequence_length or layers")
      ->type_name("WHAT")
      ->required();
  add_strategies(*app, options.strategies);
  add_json(*app, options.json);
  return {app, [&] { return fit_command(options); }};
}

Command add_search(CLI::App& program, SearchCommandOptions& options) {
  CLI::App* app = program.add_subcommand(
      "search", "Finds the best GPUs, strategy, micro-batch and checkpointing within limits");
  add_job(*app, options.job, "JOB", "job file (YAML)");
  add_gpus(*app, options.job);
  app->add_option("--objective", options.objective,
                  "what is to be least: cost of a token, time (default), or memory of a GPU")
      ->type_name("WHAT");
  app->add_option("--available", options.available,
                  "GPUs to choose from, e.g. h100-sxm-80:64,a100-sxm-80:128:2.50; repeatable "
                  "(default: up to the job's)")
      ->type_name("GPU:COUNT[:PRICE]")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_strategies(*app, options.strategies);
  app->add_option("--global-batch", options.global_batch,
                  "sequences of a step, which micro-steps make up (default: as many as the job's)")
      ->type_name("N");
  app->add_option("--tokens", options.tokens, "tokens to train on, for budget and deadline")
      ->type_name("T");
  app->add_option("--budget", options.budget, "dollars in all")->type_name("USD");
  app->add_option("--deadline", options.deadline, "hours in all")->type_name("HOURS");
  app->add_option("--memory", options.memory, "memory of a GPU to stay within")->type_name("GIB");
  add_json(*app, options.json);
  return {app, [&] { return search_command(options); }};
}

Command add_simulate(CLI::App& program, SimulateCommandOptions& options) {
  CLI::App* app = program.add_subcommand("simulate", "Predicts time and memory of a plan");
  add_job(*app, options.job, "JOB", "job file (YAML) or plan.json");
  add_gpus(*app, options.job);
  app->add_option("--trace", options.trace,
                  "where to write the timeline, for Perfetto or chrome://tracing")
      ->type_name("FILE");
  app->add_option("--tokens", options.tokens,
                  "tokens to train on, for the time in all with failures and checkpoints")
      ->type_name("T");
  const auto add_number = [&](const char* flag, double& value, const char* help, const char* type) {
    app->add_option(flag, value, help)
        ->type_name(type)
        ->check([](const std::string& text) {
          const auto number = number_from(text);
          return number && *number >= 0 && *number <= 1e9
                     ? std::string()
                     : text + ": expected a number from 0 to 1e9";
        })
        ->capture_default_str();
  };
  add_number("--gpu-mtbf", options.gpu_mtbf_hours,
             "mean time between failures that one GPU causes; 0: none", "HOURS");
  add_number("--checkpoint-every", options.checkpoint_every_minutes,
             "training between two checkpoints; 0: the best", "MINUTES");
  add_number("--checkpoint-time", options.checkpoint_seconds,
             "that training stands still for a checkpoint", "SECONDS");
  add_number("--restart-time", options.restart_minutes, "from a failure to training again",
             "MINUTES");
  add_number("--jitter", options.jitter, "deviation of a rank's step, as a share of it", "SHARE");
  app->add_option("--seed", options.seed, "of the failures that are drawn")->type_name("N");
  add_json(*app, options.json);
  return {app, [&] { return simulate_command(options); }};
}

Command add_run(CLI::App& program, RunOptions& options) {
  CLI::App* app = program.add_subcommand(
      "run", "Executes a plan on CPU ranks: threads, or processes (mpirun, srun, torchrun)");
  add_job(*app, options.job, "JOB", "job file (YAML) or plan.json");
  app->add_option("--ranks,--gpus", options.job.gpus, "ranks in all")->type_name("N");
  app->add_flag("--processes", options.processes,
                "a process for each rank, on this machine (default: threads of one process)");
  app->add_option("--resume", options.resume,
                  "go on from a checkpoint; auto: the newest one of the job, if any")
      ->type_name("auto|PATH");
  app->add_option("--rehearse", options.rehearse,
                  "one rank of a large job alone: its memory and time are real, its numbers not")
      ->type_name("RANK/WORLD");
  app->add_flag("--dry-run", options.dry_run,
                "plans, connects and does one collective of each kind; trains nothing");
  app->add_option("--timeout", options.timeout_s,
                  "seconds that a rank waits for others before the job ends (default 60)")
      ->type_name("SECONDS");
  app->add_option("--device", options.device, "cpu, cuda, or auto: GPUs where there are any")
      ->type_name("NAME");
  app->add_flag("--json-lines", options.json_lines, "one JSON object a step on standard output");
  add_json(*app, options.json);
  return {app, [&] { return run_command(options); }};
}

Command add_check(CLI::App& program, CheckOptions& options) {
  CLI::App* app = program.add_subcommand("check", "Holds a measurement against a prediction");
  app->add_option("--plan", options.plan, "plan, job or prediction")->type_name("FILE")->required();
  app->add_option("--measured", options.measured, "measurement, such as run.json")
      ->type_name("FILE")
      ->required();
  app->add_option("--tolerance", options.tolerance,
                  "share of the prediction, e.g. 3% (default) or 0.03")
      ->type_name("SHARE");
  app->add_option("--time-tolerance", options.time_tolerance,
                  "compare the step time too, within this share")
      ->type_name("SHARE");
  app->add_flag("--exact", options.exact, "allocated memory must agree to the byte");
  app->add_option("--metrics", options.metrics, "compare these only")
      ->type_name("A,B")
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_option("--one-sided", options.one_sided,
                  "over: only more than predicted fails; under: only less")
      ->type_name("SIDE");
  app->add_option("--baseline", options.baseline, "older measurement that this one may not exceed")
      ->type_name("FILE");
  app->add_option("--junit", options.junit, "where to write a JUnit report")->type_name("FILE");
  add_json(*app, options.json);
  return {app, [&] { return check_command(options); }};
}

Command add_report(CLI::App& program, ReportOptions& options) {
  CLI::App* app = program.add_subcommand(
      "report", "Lays a measurement beside the prediction, by phase and unit");
  app->add_option("PREDICTION", options.prediction, "prediction.json, plan or job")->required();
  app->add_option("MEASUREMENT", options.measured, "run.json")->required();
  add_json(*app, options.json);
  return {app, [&] { return report_command(options); }};
}

Command add_verify(CLI::App& program, VerifyOptions& options) {
  CLI::App* app =
      program.add_subcommand("verify", "Proves that a plan is right, or names its faults");
  app->add_option("PLAN", options.plan, "plan.json")->required();
  add_json(*app, options.json);
  return {app, [&] { return verify_command(options); }};
}

Command add_import(CLI::App& program, ImportCommandOptions& options) {
  CLI::App* app = program.add_subcommand(
      "import", "Turns a file of another tool into a job, and says what the tool ignores in it");
  app->add_option("TOOL", options.tool, "accelerate, deepspeed or hf")->required();
  add_job(*app, options.job, "FILE", "accelerate YAML, DeepSpeed JSON, or config.json");
  add_gpus(*app, options.job);
  app->add_option("-o", options.output, "where to write the job file")->type_name("FILE");
  add_json(*app, options.json);
  return {app, [&] { return import_command(options); }};
}

Command add_score(CLI::App& program, ScoreOptions& options) {
  CLI::App* app = program.add_subcommand(
      "score", "Predicts a table of published measurements, and tells how far off that is");
  app->add_option("TABLE", options.table, "CSV with a training a row")->required();
  app->add_option("--svg", options.svg, "where to write a picture of predicted against measured")
      ->type_name("FILE");
  add_json(*app, options.json);
  return {app, [&] { return score_command(options); }};
}

Command add_calibrate(CLI::App& program, CalibrateOptions& options) {
  CLI::App* app = program.add_subcommand(
      "calibrate",
      "Measures this machine, or fits the constants of the time model to a table of measurements");
  CLI::Option* table =
      app->add_option("TABLE", options.table, "CSV with a training a row (default: this machine)");
  app->add_flag("--leave-out", options.leave_out,
                "fit again without each family of rows, and tell how well that predicts it")
      ->needs(table);
  app->add_option("--ranks", options.ranks, "CPU ranks of this machine (default: one a core)")
      ->type_name("N")
      ->excludes(table);
  app->add_option("-o", options.output, "where to write them, for --cluster (default: the screen)")
      ->type_name("FILE")
      ->excludes(table);
  return {app, [&] { return calibrate_command(options); }};
}

/// Names of the commands.
std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands)
    names.push_back(command.app->get_name());
  return names;
}

/// Long names of an app's options, with their dashes.
std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
  return names;
}

/// What CLI11 found wrong, as an InputError in our words.
[[noreturn]] void fail(const CLI::App& app, const CLI::ParseError& error) {
  const std::string source = fmt::format("command line: {}", app.get_name());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr)
    throw InputError(
        fmt::format("{}: {}; see shardplan {} --help", source, error.what(), app.get_name()));
  const std::string extra = app.remaining(true).front();
  if (!extra.starts_with("-"))
    throw InputError(fmt::format("{}: unexpected argument '{}'", source, extra));
  throw InputError(fmt::format(
      "{}: {}", source, unknown_name("option", extra.substr(0, extra.find('=')), options_of(app))));
}

int run_program(int argc, char** argv) {
  CLI::App program("Plans, predicts, runs and checks sharded data-parallel training.", "shardplan");
  program.set_version_flag("--version", "shardplan " SHARDPLAN_VERSION);
  program.set_help_flag("-h,--help", "this text");
  AllOptions options;
  const std::vector<Command> commands{
      add_plan(program, options.plan),         add_compare(program, options.compare),
      add_fit(program, options.fit),           add_search(program, options.search),
      add_simulate(program, options.simulate), add_run(program, options.run),
      add_check(program, options.check),       add_report(program, options.report),
      add_verify(program, options.verify),     add_import(program, options.imported),
      add_score(program, options.score),       add_calibrate(program, options.calibrate)};
  const std::vector<std::string> names = names_of(commands);
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty())
    throw InputError(fmt::format("command line: expected a command: {}", fmt::join(names, ", ")));
  const bool is_command = std::ranges::find(names, first) != names.end();
  if (!first.starts_with("-") && !is_command)
    throw InputError("command line: " + unknown_name("command", first, names));
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return program.exit(success);  // prints the help or the version
  } catch (const CLI::ParseError& error) {
    for (const Command& command : commands)
      if (command.app->parsed()) fail(*command.app, error);
    fail(program, error);
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return command.run();
  throw InputError(fmt::format("command line: expected a command: {}", fmt::join(names, ", ")));
}

/// One line on standard error. Input that it quotes must not reach the terminal as control
/// characters.
void complain(std::string_view message) {
  std::string line;
  for (const char c : message)
    if (std::iscntrl(static_cast<unsigned char>(c)) && c != '\n')
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      line += c;
  fmt::print(stderr, "{}\n", line);
}

}  // namespace
}  // namespace shardplan

int main(int argc, char** argv) {
  using shardplan::complain;
  using shardplan::kMachineFailed;
  try {
    const int status = shardplan::run_program(argc, argv);
    // An answer that nobody could read, because the disk is full or the pipe closed, is none.
    if (std::fflush(stdout) != 0)
      throw shardplan::SystemError("standard output: cannot be written");
    return status;
  } catch (const shardplan::InputError& error) {
    complain(error.what());
    return shardplan::kWrongInput;
  } catch (const shardplan::SystemError& error) {
    complain(error.what());
  } catch (const std::bad_alloc&) {
    complain("shardplan: not enough memory on this machine");
  } catch (const std::system_error& error) {  // fmt's, about standard output
    complain(fmt::format("standard output: {}", error.what()));
  } catch (const std::exception& error) {
    complain(fmt::format("shardplan: internal error: {}", error.what()));
  }
  return kMachineFailed;
}
