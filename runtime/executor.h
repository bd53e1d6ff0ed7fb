#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"

namespace shardplan {

struct DeviceKind;
class ProcessWorld;

struct ExecuteOptions {
  const DeviceKind* device = nullptr;  // what ranks run on; null: CPUs. See open_device_kind()
  int threads_per_rank = 0;            // of the compute stream; 0: cores / ranks, at least 1
  double collective_timeout_s = 60;
  /// Measure memory: pattern fill of the arena, bytes changed per buffer, guards around it.
  bool measure_memory = true;
  /// Path of a checkpoint with all that the plan trains, of any world and way of sharding; empty:
  /// training begins with its first step.
  std::string resume;
  /// Asked after every step; when it says yes on any rank, all write a checkpoint after the same
  /// step and end there. May be empty.
  std::function<bool()> stop_requested;
  /// Called before each execution of an instruction with its step, from 0, on the thread that does
  /// it. May be empty.
  std::function<void(InstructionId, int step)> before_instruction;
  /// Called on one thread after every step.
  std::function<void(const StepReport&)> on_step;
  /// When not null, receives every parameter's optimizer state after the last step, whole and in
  /// order: "name.exp_avg", "name.exp_avg_sq" or "name.momentum_buffer" -> values.
  std::map<std::string, std::vector<float>>* optimizer_state = nullptr;
};

/// Whether so many CPU ranks of a plan fit the memory of this machine.
struct MachineFit {
  Bytes needed = 0;                // by their arenas
  std::optional<Bytes> available;  // no value: the system does not tell

  bool fits() const { return !available || needed <= *available; }
};
MachineFit fit_on_this_machine(const Plan& plan, std::int64_t ranks);

/// Executes the plan, which verify() must have found without faults, with ranks that are all in
/// this process. Writes the weights into job.run.output when the plan's `save` segment says so, and
/// a checkpoint into job.run.output/checkpoints after every job.run.checkpoint_every steps. Throws
/// InputError for bad weights or tokens, SystemError when the plan does not fit this machine, and,
/// naming rank and instruction, when something fails on the way.
Report execute(const Plan& plan, const ExecuteOptions& options);

/// Executes one rank, this process's of the world, which all processes of the job do with the same
/// plan; with the same results, to the bit. Files are of a file system that all see; rank 0 calls
/// `on_step`. The report has the memory of all ranks, and the times of this one.
Report execute(const Plan& plan, const ExecuteOptions& options, ProcessWorld& world);

/// Executes one rank of the plan's world on this machine as if the others were there: collectives
/// are local copies. Memory and compute are real, numbers are not; no weights and no checkpoints
/// are written.
Report rehearse(const Plan& plan, const ExecuteOptions& options, std::int64_t rank);

}  // namespace shardplan
