#pragma once

#include <optional>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "runtime/arena.h"
#include "runtime/device.h"

namespace shardplan {

/// Measures what a run really uses of one rank's arena: fills arena and guards with a pattern and
/// looks which words change. A buffer whose bytes were another's before gets the pattern again
/// ahead of its first use, and is counted after the last instruction that writes it; both in the
/// first pass only.
class MemoryMeter {
 public:
  /// `plan` and `arena` must outlive this.
  MemoryMeter(const Plan& plan, Arena& arena);

  /// To be called around the execution of every issue, by the thread that executes it.
  void before(const Issue& issue);
  void after(const Issue& issue);

  /// After the last instruction: peak_allocated_bytes = bytes from the arena's begin to the last
  /// changed one; at_peak = changed bytes by category of the buffers that live at the plan's peak
  /// in issue order. Throws SystemError when bytes outside all buffers have changed.
  RankMemory finish();

 private:
  std::span<std::byte> bytes_of(BufferId buffer);
  void expect_untouched_outside();

  const Plan& plan_;
  Arena& arena_;
  std::vector<std::vector<BufferId>> begins_;  // by instruction: buffers it is the first to touch
  std::vector<std::vector<BufferId>> ends_;    // by instruction: buffers it is the last to write
  std::vector<Bytes> changed_;                 // by buffer
  std::vector<BufferId> at_peak_;              // buffers that live at the peak
  InstructionId peak_ = -1;
};

/// Resident set of this process, which all its ranks share; nothing where the system does not tell.
std::optional<Bytes> resident_set_bytes();

}  // namespace shardplan
