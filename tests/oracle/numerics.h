#pragma once

#include <filesystem>
#include <string>

#include "plans/operators.h"
#include "runtime/device_kind.h"
#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

struct NumericsOptions {
  std::filesystem::path folder;  // as tests/oracle/numerics
  std::string filter;            // cases whose names hold this
  Profile profile = Profile::CpuOneDnn;
  bool processes = false;              // a process for each rank; else threads
  const DeviceKind* device = nullptr;  // null: CPUs
  bool once = false;  // only what is held against PyTorch: no repetitions, twins and variants
  Scorecard::Form form = Scorecard::Form::Text;
};

/// Trains every case and holds loss, gradients, weights and memory against PyTorch's
/// run and our own prediction. Returns the exit status.
int numerics(const NumericsOptions& options);

}  // namespace shardplan::oracle
