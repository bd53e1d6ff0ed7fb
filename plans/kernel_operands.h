#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plans/extent.h"
#include "plans/operators.h"
#include "plans/units.h"

namespace shardplan {

/// What a view must be to be an operand of a launch.
struct OperandType {
  std::optional<Extent> elems;  // empty: any number
  Dtype dtype = Dtype::Float32;

  // A number of elements is an operand: lists of operands read as lists of sizes.
  // NOLINTNEXTLINE(google-explicit-constructor)
  OperandType(Extent elements, Dtype type = Dtype::Float32) : elems(elements), dtype(type) {}
  static OperandType of_any_size(Dtype type = Dtype::Float32) {
    OperandType operand(0, type);
    operand.elems.reset();
    return operand;
  }
};

/// The operands of a launch in the order of the launcher's arguments. Operands that are added to
/// stand behind the kernel's own reads.
struct OperandTypes {
  std::vector<OperandType> reads;
  std::vector<OperandType> writes;
  int optional_reads = 0;   // how many at the end may be missing (bias, momentum)
  int optional_writes = 0;  // likewise
  bool one_size = false;    // operands of any size all have one size (optimizers, add)
  std::optional<OperandType> more_reads = {};  // any number of further reads (sum of squares)
  bool accumulates = false;                    // can add to what it writes
  bool may_be_narrow = false;  // operands of float32 may be of bfloat16: see widens()
};
/// Whether the kernel can add to what it writes, instead of overwriting it.
bool accumulates(Kernel kernel);

/// `attributes` must be without attribute_fault().
OperandTypes operand_types(Kernel kernel, const Attributes& attributes, Profile profile);

/// Why no launch of `kernel` has these attributes: counts that are no whole numbers from 0 to 2^32,
/// heads that do not share keys evenly, ...; empty: they are fine.
std::string attribute_fault(Kernel kernel, const Attributes& attributes, Profile profile);

}  // namespace shardplan
