#include "tools/run_device.h"

#include <fmt/format.h>

#include <vector>

#include "plans/error.h"
#include "plans/names.h"
#include "runtime/plugin.h"
#include "tools/cpu_job.h"

namespace shardplan {
namespace {

/// Throws SystemError when this build or this machine has no GPUs.
const DeviceKind& working_cuda() {
  const DeviceKind& cuda = open_cuda();
  cuda.count();
  return cuda;
}

}  // namespace

RunDevice device_of(const std::string& name) {
  if (name == "cpu") return {};
  if (name != "cuda" && name != "auto")
    throw InputError("command line: run: --device: " +
                     unknown_name("device", name, std::vector<std::string>{"cpu", "cuda", "auto"}));
  try {
    return {&working_cuda(), {}};
  } catch (const SystemError& error) {
    if (name == "auto")
      return {nullptr, fmt::format("Runs on CPU ranks, because {}.\n", error.what())};
    throw InputError(fmt::format(
        "command line: run: --device cuda: {}; expected cpu, or auto for CPU ranks where there is "
        "no GPU",
        error.what()));
  }
}

Job job_on(const RunDevice& device, const Job& job, const Hardware& hardware) {
  if (device.kind == nullptr) return on_cpu(job, hardware);
  if (job.cluster.gpu.is_cpu())
    throw InputError(
        "run: --device cuda: the job is for CPU ranks; expected the GPU of this machine, e.g. "
        "--gpu h100-sxm-80");
  Job changed = job;
  changed.strategy.profile = Profile::Cuda;
  return changed;
}

}  // namespace shardplan
