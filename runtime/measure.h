#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "runtime/arena.h"
#include "runtime/device.h"

namespace shardplan {

/// Measures what a run really uses of one rank's arena: fills arena and guards with a pattern and
/// looks which words change. Bytes that were another buffer's before get the pattern again ahead of
/// their first write, and are counted after their last; both in the first pass only. This touches
/// no byte that the instruction at hand does not write, so it adds no race to a plan without one.
class MemoryMeter {
 public:
  /// All must outlive this. To be made while no issue runs.
  MemoryMeter(const Plan& plan, const Arena& arena, Device& device);

  /// To be called around the execution of every issue, by its body.
  void before(const Issue& issue);
  void after(const Issue& issue);

  /// After the last instruction: peak_allocated_bytes = bytes from the arena's begin to the last
  /// changed one; at_peak = changed bytes by category of the buffers that live at the plan's peak
  /// in issue order. Throws SystemError when bytes outside all buffers have changed.
  RankMemory finish();

 private:
  /// Bytes of a buffer that every instruction touches all or none of.
  struct Cell {
    Bytes begin = 0;  // in the arena
    Bytes end = 0;
    InstructionId first_writer = -1;  // -1: something reads it first, or nothing touches it
    InstructionId last_writer = -1;
    Bytes* changed = nullptr;  // after the last writer
  };

  void cut_into_cells(std::span<const InstructionId> order);
  void find_writers(std::span<const InstructionId> order);
  void place_counters();
  Bytes changed_now(std::span<const std::byte> memory);
  Bytes changed_of(BufferId buffer);
  void expect_pattern(std::span<const std::byte> memory, std::string_view where);
  void expect_untouched_outside();
  Bytes extent();

  const Plan& plan_;
  const Arena& arena_;
  Device& device_;
  std::span<Bytes> counters_;               // pinned; the first one is for changed_now()
  std::vector<std::vector<Cell>> cells_;    // by buffer; none for residents
  std::vector<std::vector<Cell*>> begins_;  // by instruction: cells it is the first to write
  std::vector<std::vector<Cell*>> ends_;    // by instruction: cells it is the last to write
  std::vector<BufferId> at_peak_;           // buffers that live at the peak
  InstructionId peak_ = -1;
};

}  // namespace shardplan
