// The acceptance program: holds plans, predictions and runs against figures that other programs
// measured. One subcommand and one file per kind of figures.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "plans/error.h"
#include "tests/oracle/allocator.h"
#include "tests/oracle/arena.h"
#include "tests/oracle/mutants.h"
#include "tests/oracle/numerics.h"

namespace {

constexpr int kWrongInput = 2;
constexpr int kMachineFailed = 3;

}  // namespace

int main(int argc, char** argv) {
  using namespace shardplan;
  CLI::App app("Acceptance checks of shardplan");
  app.require_subcommand(1);

  oracle::NumericsOptions options;
  std::string profile = "cpu-onednn";
  bool json = false;
  CLI::App* numerics = app.add_subcommand("numerics", "Trained numbers and memory, by case");
  numerics->add_option("DIR", options.folder, "Folder of cases, models and data")->required();
  numerics->add_option("--filter", options.filter, "Only cases whose names hold this");
  numerics->add_option("--profile", profile, "cpu-onednn or cpu-reference");
  CLI::App* arena = app.add_subcommand("arena", "Memory plans against the live bound, by preset");
  std::string file;
  CLI::App* allocator =
      app.add_subcommand("allocator", "The caching allocator, by request and sequence");
  allocator->add_option("FILE", file, "Requests and the figures after each")->required();
  oracle::MutantsOptions mutants_options;
  CLI::App* mutants = app.add_subcommand("mutants", "Changed plans: found by verify, or harmless");
  mutants->add_option("--every", mutants_options.every, "Only every so manieth mutant")
      ->check(CLI::PositiveNumber);
  for (CLI::App* command : {numerics, arena, allocator, mutants})
    command->add_flag("--json", json, "One JSON object instead of lines");

  try {
    app.parse(argc, argv);
    options.profile = profile_from(profile);
    if (json) options.form = mutants_options.form = oracle::Scorecard::Form::Json;
    if (allocator->parsed()) return oracle::allocator(file, options.form);
    if (mutants->parsed()) return oracle::mutants(mutants_options);
    return arena->parsed() ? oracle::arena(options.form) : oracle::numerics(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongInput;
  } catch (const InputError& error) {
    fmt::print(stderr, "shardplan_oracle: {}\n", error.what());
    return kWrongInput;
  } catch (const SystemError& error) {
    fmt::print(stderr, "shardplan_oracle: {}\n", error.what());
    return kMachineFailed;
  }
}
