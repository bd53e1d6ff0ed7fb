// The acceptance program: holds plans, predictions and runs against figures that other programs
// measured. One subcommand and one file per kind of figures.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plans/error.h"
#include "plans/names.h"
#include "runtime/plugin.h"
#include "tests/oracle/allocator.h"
#include "tests/oracle/arena.h"
#include "tests/oracle/bandwidth.h"
#include "tests/oracle/collectives.h"
#include "tests/oracle/configs.h"
#include "tests/oracle/deepspeed.h"
#include "tests/oracle/launch.h"
#include "tests/oracle/memory.h"
#include "tests/oracle/mutants.h"
#include "tests/oracle/numerics.h"
#include "tests/oracle/waits.h"

namespace shardplan::oracle {
namespace {

constexpr int kWrongInput = 2;
constexpr int kMachineFailed = 3;

using Form = Scorecard::Form;

/// Null: CPUs.
const DeviceKind* device_from(const std::string& name) {
  if (name == "cpu") return nullptr;
  if (name == "cuda") return &open_cuda();
  if (name == "fake-cuda") return &open_plugin(SHARDPLAN_FAKE_CUDA);
  throw InputError(
      "--device: " +
      unknown_name("device", name, std::vector<std::string>{"cpu", "cuda", "fake-cuda"}));
}

int run_program(int argc, char** argv) {
  CLI::App app("Acceptance checks of shardplan");
  app.require_subcommand(1);
  bool json = false;
  std::vector<std::pair<CLI::App*, std::function<int(Form)>>> commands;
  const auto add = [&](const char* name, const char* what, std::function<int(Form)> run) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_flag("--json", json, "One JSON object instead of lines");
    commands.emplace_back(command, std::move(run));
    return command;
  };

  NumericsOptions options;
  std::string profile;
  std::string device = "cpu";
  CLI::App* command = add("numerics", "Trained numbers and memory, by case", [&](Form form) {
    options.device = device_from(device);
    options.profile = profile.empty() ? (options.device ? Profile::Cuda : Profile::CpuOneDnn)
                                      : profile_from(profile);
    options.form = form;
    return numerics(options);
  });
  command->add_option("DIR", options.folder, "Folder of cases, models and data")->required();
  command->add_option("--filter", options.filter, "Only cases whose names hold this");
  command->add_flag("--processes", options.processes, "A process for each rank");
  command->add_option("--profile", profile, "cpu-onednn or cpu-reference");
  command->add_flag("--once", options.once, "Only what PyTorch measured: nothing is run twice");
  command->add_option("--device", device, "cpu, cuda, or fake-cuda: emulated on the CPU");

  add("arena", "Memory plans against the live bound, by preset", arena);
  add("waits", "Whether verify misses any wait that is removed, by plan", waits);

  std::string requests;
  add("allocator", "The caching allocator, by request and sequence",
      [&](Form form) { return allocator(requests, form); })
      ->add_option("FILE", requests, "Requests and the figures after each")
      ->required();

  std::string measurements;
  add("bandwidth", "Times of collectives, by published table",
      [&](Form form) { return bandwidth(measurements, form); })
      ->add_option("FILE", measurements, "CSV with the columns of nccl-tests")
      ->required();

  std::string memory_file;
  std::string memory_filter;
  CLI::App* memory_command = add("memory", "Memory of PyTorch's engines, by case", [&](Form form) {
    return memory(memory_file, memory_filter, form);
  });
  memory_command->add_option("FILE", memory_file, "Models, cases and their figures")->required();
  memory_command->add_option("--filter", memory_filter, "Only cases whose ids hold this");

  std::string collectives_file;
  std::string collectives_filter;
  CLI::App* collectives_command =
      add("collectives", "Collectives of PyTorch's engines, by case",
          [&](Form form) { return collectives(collectives_file, collectives_filter, form); });
  collectives_command->add_option("FILE", collectives_file, "Models, cases and lists")->required();
  collectives_command->add_option("--filter", collectives_filter, "Only cases whose ids hold this");

  std::string deepspeed_file;
  std::string deepspeed_filter;
  CLI::App* deepspeed_command =
      add("deepspeed", "DeepSpeed's memory and collectives, by case",
          [&](Form form) { return deepspeed(deepspeed_file, deepspeed_filter, form); });
  deepspeed_command->add_option("FILE", deepspeed_file, "Cases and their figures")->required();
  deepspeed_command->add_option("--filter", deepspeed_filter, "Only cases whose ids hold this");

  std::string config_folder;
  add("configs", "Parameter counts of config.json files",
      [&](Form form) { return configs(config_folder, form); })
      ->add_option("DIR", config_folder, "Folder of NAME/config.json and params.csv")
      ->required();

  std::string launch_folder;
  add("launch", "What accelerate and DeepSpeed files mean",
      [&](Form form) { return launch(launch_folder, form); })
      ->add_option("DIR", launch_folder, "Folder of launch files and expected.json")
      ->required();

  MutantsOptions mutant_options;
  add("mutants", "Changed plans: found by verify, or harmless",
      [&](Form form) {
        mutant_options.form = form;
        return mutants(mutant_options);
      })
      ->add_option("--every", mutant_options.every, "Only every so manieth mutant")
      ->check(CLI::PositiveNumber);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongInput;
  }
  for (const auto& [parsed, run] : commands)
    if (parsed->parsed()) return run(json ? Form::Json : Form::Text);
  return kWrongInput;
}

}  // namespace
}  // namespace shardplan::oracle

int main(int argc, char** argv) {
  using namespace shardplan::oracle;  // NOLINT(google-build-using-namespace)
  try {
    return run_program(argc, argv);
  } catch (const shardplan::InputError& error) {
    fmt::print(stderr, "shardplan_oracle: {}\n", error.what());
    return kWrongInput;
  } catch (const shardplan::SystemError& error) {
    fmt::print(stderr, "shardplan_oracle: {}\n", error.what());
    return kMachineFailed;
  }
}
