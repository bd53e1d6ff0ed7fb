#include "tests/oracle/execution.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "plans/error.h"
#include "runtime/comm/process_communicator.h"
#include "runtime/executor.h"
#include "runtime/launch_ranks.h"
#include "runtime/safetensors.h"
#include "runtime/safetensors_writer.h"

namespace shardplan::oracle {
namespace {

constexpr Seconds kTimeout_s = 60;

std::string report_file(const std::filesystem::path& folder) {
  return (folder / "report.json").string();
}
std::string state_file(const std::filesystem::path& folder) {
  return (folder / "optimizer_state.safetensors").string();
}

void write_state(const TensorsByName& state, const std::string& path) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& [name, values] : state)
    entries.push_back({name, {static_cast<std::int64_t>(values.size())}});
  SafetensorsWriter writer(path, entries);
  for (const auto& [name, values] : state)
    writer.write(name, 0, values);
  writer.commit();
}

TensorsByName read_state(const std::string& path) {
  TensorsByName state;
  const MappedFile file(path, "optimizer state");
  for (const auto& [name, tensor] : parse_safetensors(file.bytes(), path)) {
    state[name].resize(static_cast<std::size_t>(tensor.elements()));
    read_elements(tensor, 0, state[name]);
  }
  return state;
}

/// One rank's process, to its end.
int run_rank(const Plan& plan, Launched launched, bool with_state,
             const std::filesystem::path& folder) {
  ProcessWorld world(*launched.place, std::move(launched.listener), kTimeout_s);
  try {
    TensorsByName state;
    ExecuteOptions options;
    if (with_state) options.optimizer_state = &state;
    const Report report = execute(plan, options, world);
    if (world.rank() != 0) return 0;
    std::ofstream(report_file(folder)) << measurement_json(report, plan);
    if (with_state) write_state(state, state_file(folder));
    return 0;
  } catch (const std::exception& error) {
    if (const auto text = world.report(error.what())) fmt::print(stderr, "{}\n", *text);
    return 3;
  }
}

}  // namespace

Report execute_in_threads(const Plan& plan, TensorsByName* optimizer_state,
                          const DeviceKind* device) {
  ExecuteOptions options;
  options.device = device;
  options.optimizer_state = optimizer_state;
  return execute(plan, options);
}

Report execute_in_processes(const Plan& plan, TensorsByName* optimizer_state,
                            const std::filesystem::path& folder) {
  Launched launched = launch_ranks(plan.world_size(), kTimeout_s);
  if (launched.place) {
    const int status = run_rank(plan, std::move(launched), optimizer_state != nullptr, folder);
    std::fflush(nullptr);
    std::_Exit(status);
  }
  if (launched.status != 0) throw SystemError("the ranks' processes failed");
  std::ifstream file(report_file(folder));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (optimizer_state) *optimizer_state = read_state(state_file(folder));
  return report_from_json(text, report_file(folder));
}

}  // namespace shardplan::oracle
