#pragma once

#include <span>
#include <vector>

#include "plans/operators.h"

namespace shardplan {

/// A call of the operator catalogue, as part of its operator.
struct KernelUse {
  const OperatorSpec* op = nullptr;
  const KernelCall* call = nullptr;
  bool forward = true;
};

/// All calls of a kernel in the catalogue.
std::span<const KernelUse> uses_of(Kernel kernel);

/// How many parameters a launch of the forward call has that reads `operands` of its own: those at
/// the end may be absent (bias).
int parameters_present(const KernelCall& forward, std::size_t operands);

/// The roles of the operands of a launch when the operator has so many parameters.
std::vector<Role> present(const std::vector<Role>& roles, int parameters);

/// Whether backward gives a gradient to that operand of the forward call.
bool has_gradient(const OperatorSpec& op, const Role& operand);

}  // namespace shardplan
