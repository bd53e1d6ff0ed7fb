#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plans/cells.h"
#include "plans/plan.h"

namespace shardplan {

/// Address of each buffer's first byte when every buffer has bytes of its own.
std::vector<Bytes> separate_addresses(const Plan& plan);
/// The same where buffers share the arena as their offsets say; buffers outside the device follow
/// it.
std::vector<Bytes> arena_addresses(const Plan& plan);

/// Whether `later` must wait for an access to the same bytes on another stream: an allocation is
/// new memory, and a free leaves the streams that it names to the allocator (record_stream).
bool must_wait(const Instruction& later, Stream earlier);

/// Who touched which bytes, along an issue order: for every cell its last write and, by stream, the
/// last read since.
class AccessHistory {
 public:
  /// Every operand must lie inside its buffer.
  AccessHistory(const Plan& plan, const std::vector<Bytes>& addresses);

  /// Cells of an instruction's operands, in their order.
  struct Footprint {
    std::vector<CellRange> reads;
    std::vector<CellRange> writes;
  };
  const Footprint& footprint(InstructionId id) const { return footprints_[id]; }
  std::int32_t cell_count() const { return static_cast<std::int32_t>(states_.size()); }
  /// Address of the first byte of a cell.
  Bytes cell_begin(std::int32_t cell) const { return cells_.begin(cell); }

  /// Calls visit(position, view) for the earlier accesses that must have finished before `id`
  /// starts: writes to what it reads, reads of and writes to what it writes. The same may come
  /// repeatedly.
  template <typename Visit>
  void for_each_conflict(InstructionId id, Visit visit) const {
    const Instruction& instruction = plan_.instructions[id];
    for (std::size_t i = 0; i < instruction.reads.size(); ++i)
      for (std::int32_t c = footprints_[id].reads[i].begin; c < footprints_[id].reads[i].end; ++c)
        if (states_[c].writer >= 0) visit(states_[c].writer, instruction.reads[i]);
    for (std::size_t i = 0; i < instruction.writes.size(); ++i)
      for (std::int32_t c = footprints_[id].writes[i].begin; c < footprints_[id].writes[i].end;
           ++c) {
        const State& state = states_[c];
        if (state.writer >= 0) visit(state.writer, instruction.writes[i]);
        for (const std::int32_t reader : state.readers)
          if (reader >= 0) visit(reader, instruction.writes[i]);
      }
  }

  /// `id` ran at `position`.
  void record(InstructionId id, std::int32_t position);

 private:
  AccessHistory(const Plan& plan, const std::vector<AddressRange>& ranges);

  struct State {
    std::int32_t writer = -1;  // position
    std::array<std::int32_t, kStreams> readers;
    State() { readers.fill(-1); }
  };

  const Plan& plan_;
  Cells cells_;
  std::vector<Footprint> footprints_;  // by instruction
  std::vector<State> states_;          // by cell
};

}  // namespace shardplan
