#pragma once

#include <string>

#include "plans/hardware.h"
#include "plans/job.h"
#include "runtime/device_kind.h"

namespace shardplan {

/// What `run --device` chooses.
struct RunDevice {
  const DeviceKind* kind = nullptr;  // null: CPU ranks
  std::string note;                  // for people, when another one was chosen than the best

  const char* name() const { return kind ? kind->name : "CPU"; }
};

/// "cpu"; "cuda"; or "auto": GPUs where this build and this machine have them, else CPU ranks.
/// Throws InputError for other names and for "cuda" where there is none.
RunDevice device_of(const std::string& name);

/// The job as ranks on that device execute it. Throws InputError when a GPU is needed and the job
/// does not say which.
Job job_on(const RunDevice& device, const Job& job, const Hardware& hardware);

}  // namespace shardplan
