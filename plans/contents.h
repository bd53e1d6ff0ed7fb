#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "plans/access_history.h"
#include "plans/plan.h"
#include "plans/values.h"

namespace shardplan {

/// What the bytes of a plan hold along an issue order: by cell the buffer that they were last
/// written as, and the values that its elements are.
class Contents {
 public:
  /// Called with what is wrong about an instruction (-1: the program) and a buffer (-1: none).
  using Report = std::function<void(InstructionId, BufferId, std::string_view)>;
  Contents(const Plan& plan, const AccessHistory& accesses, Report report);

  const Plan& plan() const { return plan_; }
  Values& values() { return values_; }
  const Instruction& at(InstructionId id) const { return plan_.instructions[id]; }

  /// Reports operands whose bytes were not written, or as another buffer.
  void check_owners(InstructionId id);
  /// The slices of which an instruction's i-th read operand consists; rows are resolved.
  std::vector<Slice> read(InstructionId id, std::size_t i) const;
  /// The same as one value.
  ValueId read_value(InstructionId id, std::size_t i) { return values_.row(read(id, i)); }

  /// The i-th written operand now holds these slices, which must be as large, or from the begin of
  /// this value on.
  void write(InstructionId id, std::size_t i, const std::vector<Slice>& slices);
  void write(InstructionId id, std::size_t i, ValueId value) {
    write(id, i, {{value, 0, at(id).writes[i].elems}});
  }
  /// The i-th written operand, or all, now hold something of which nothing is known.
  void write_unknown(InstructionId id, std::size_t i) {
    write(id, i, values_.opaque(at(id).writes[i].elems));
  }
  void write_unknown(InstructionId id);
  /// The i-th written operand holds what this rank owns of the slices, which the ranks of a group
  /// own in equal parts.
  void write_part(InstructionId id, std::size_t i, const std::vector<Slice>& slices, Group group);
  /// The other way round: each written operand holds the value of which the one read is a part.
  void gather(InstructionId id, Group group);
  /// The bytes of all written operands hold nothing any more.
  void forget(InstructionId id);

  void fault(InstructionId id, BufferId buffer, std::string_view why) const {
    report_(id, buffer, why);
  }

 private:
  struct Cell {
    BufferId owner = -1;  // -1: never written
    ValueId value = Values::kUnknown;
    std::int64_t shift = 0;  // from an element's place in the buffer to its place in the value
  };
  std::int64_t element(const View& view, Bytes address) const;

  const Plan& plan_;
  const AccessHistory& accesses_;
  Report report_;
  Values values_;
  const std::vector<Bytes> addresses_;  // by buffer
  std::vector<Cell> cells_;
};

}  // namespace shardplan
