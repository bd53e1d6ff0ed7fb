#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "runtime/device_kind.h"

namespace shardplan::oracle {

using TensorsByName = std::map<std::string, std::vector<float>>;

/// Executes a plan; `optimizer_state`, when not null, receives the state after the last step.
using Execution = std::function<Report(const Plan&, TensorsByName* optimizer_state)>;

/// Ranks as threads of this process. `device`: null for CPUs.
Report execute_in_threads(const Plan& plan, TensorsByName* optimizer_state,
                          const DeviceKind* device = nullptr);

/// A process for each rank; what they measure comes back through files in `folder`. This process
/// must run no threads.
Report execute_in_processes(const Plan& plan, TensorsByName* optimizer_state,
                            const std::filesystem::path& folder);

}  // namespace shardplan::oracle
