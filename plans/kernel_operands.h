#pragma once

#include <cstdint>
#include <vector>

#include "plans/operators.h"

namespace shardplan {

/// Elements of each operand of a launch, in the order of the launcher's arguments: what a plan's
/// views must have. Operands that are added to stand behind the kernel's own reads.
struct OperandSizes {
  static constexpr std::int64_t kAny = -1;
  std::vector<std::int64_t> reads;
  std::vector<std::int64_t> writes;
  int optional_reads = 0;   // how many at the end may be missing (bias, momentum)
  int optional_writes = 0;  // likewise (momentum, a workspace that the profile does without)
  bool one_size = false;    // operands of size kAny all have one size (optimizers, add)
  bool more_reads = false;  // any number of further reads that are not accumulated (sum of squares)
};
OperandSizes operand_sizes(Kernel kernel, const Attributes& attributes);

}  // namespace shardplan
