#include "runtime/comm/launch_environment.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "plans/error.h"
#include "runtime/plugin.h"

namespace shardplan {
namespace {

/// The variables of one launcher.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;
  bool pmix;        // whether it may speak PMIx
  const char* job;  // what no two jobs of a machine have in common; null: MASTER_PORT must be there
};
constexpr std::array kLaunchers{
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", false, nullptr},
    Launcher{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
             true, "PMIX_NAMESPACE"},
    // SLURM_STEP_NUM_TASKS, because SLURM_NTASKS is there in batch scripts too, outside srun.
    Launcher{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", true,
             "SLURM_JOB_ID"},
};

std::string variable(const char* name) {
  const char* value = name == nullptr ? nullptr : std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The number that a variable begins with: Slurm writes "4(x2)" for 4 tasks on each of 2 nodes.
std::int64_t number(const char* name, std::int64_t least, std::int64_t most) {
  const std::string text = variable(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() || *end == '(' || *end == ',';
  if (error != std::errc() || !whole || value < least || value > most)
    throw InputError(fmt::format("environment: {}={}: expected a whole number from {} to {}", name,
                                 text, least, most));
  return value;
}

/// The first host of Slurm's list: "node[003-007],other" begins with node003.
std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find_first_of("[,");
  std::string host = list.substr(0, bracket);
  if (bracket == std::string::npos || list[bracket] == ',') return host;
  const std::size_t end = list.find_first_of("-,]", bracket);
  return host + list.substr(bracket + 1, end - bracket - 1);
}

std::string host_of_rank_0(const Launcher& launcher, const ProcessPlace& place) {
  if (std::string host = variable("MASTER_ADDR"); !host.empty()) return host;
  if (place.local_size == place.size) return "127.0.0.1";
  if (const std::string nodes = variable("SLURM_STEP_NODELIST"); !nodes.empty())
    return first_host(nodes);
  throw InputError(fmt::format(
      "environment: {} starts ranks on several machines; set MASTER_ADDR to the host of rank 0, "
      "e.g. mpirun -x MASTER_ADDR=$(hostname) ...",
      launcher.name));
}

/// Jobs that run side by side on a machine get ports of their own.
std::uint16_t port_of_rank_0(const Launcher& launcher) {
  constexpr std::int64_t kLargestPort = 65535;
  if (!variable("MASTER_PORT").empty())
    return static_cast<std::uint16_t>(number("MASTER_PORT", 1, kLargestPort));
  const std::string job = variable(launcher.job);
  if (job.empty())
    throw InputError(
        fmt::format("environment: {} gives a rank, but MASTER_PORT is not set", launcher.name));
  // Below the ports that Linux gives to connections (from 32768 on).
  constexpr std::uint32_t kFirst = 20000;
  constexpr std::uint32_t kPorts = 12000;
  std::uint32_t hash = 2166136261u;  // FNV-1a, Fowler, Noll and Vo
  for (const char letter : job)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return static_cast<std::uint16_t>(kFirst + hash % kPorts);
}

}  // namespace

std::optional<ProcessPlace> launched_place() {
  for (const Launcher& launcher : kLaunchers) {
    if (variable(launcher.rank).empty() || variable(launcher.size).empty()) continue;
    ProcessPlace place{.launcher = launcher.name};
    place.size = number(launcher.size, 1, kMostProcesses);
    place.rank = number(launcher.rank, 0, place.size - 1);
    place.local_size = variable(launcher.local_size).empty()
                           ? place.size
                           : number(launcher.local_size, 1, place.size);
    place.host = host_of_rank_0(launcher, place);
    place.port = port_of_rank_0(launcher);
    place.mpi = launcher.pmix && !variable("PMIX_RANK").empty() && find_mpi() != nullptr;
    return place;
  }
  return std::nullopt;
}

}  // namespace shardplan
