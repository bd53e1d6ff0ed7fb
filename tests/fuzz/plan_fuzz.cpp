#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "plans/error.h"
#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/verify.h"
#include "runtime/executor.h"
#include "simulator/simulate.h"
#include "tests/fuzz/executed_plans.h"

using namespace shardplan;

namespace {

std::string folder() {
  const auto path =
      std::filesystem::temp_directory_path() / ("shardplan-fuzz-" + std::to_string(getpid()));
  std::filesystem::create_directories(path);
  std::ofstream(path / "tokens.bin", std::ios::binary) << std::string(4096, '\0');
  return path.string();
}

/// One step of a plan without faults touches only what is its own, whatever it computes.
void execute_one_step(Plan plan) {
  static const std::string kFolder = folder();
  plan.job.run = {
      .tokens = kFolder + "/tokens.bin", .steps = 1, .seed = 1, .output = kFolder + "/out"};
  try {
    execute(plan, {.threads_per_rank = 1, .collective_timeout_s = 5});
  } catch (const SystemError&) {  // too little memory, a value that no kernel takes
  }
}

}  // namespace

/// Whatever is accepted as a plan must survive its own text and be safe to verify, and to simulate
/// and execute when it has no fault; everything else must be an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Hardware hardware = Hardware::read(data_folder());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Plan plan = plan_from_json(text, "plan.json");
    const std::string written = to_json(plan);
    check(to_json(plan_from_json(written, "written")) == written, "a plan survives its JSON");
    if (!verify(plan).empty()) return 0;
    simulate(plan, hardware.costs(plan.profile));
    if (is_small(plan)) execute_one_step(plan);
  } catch (const InputError&) {
  }
  return 0;
}
