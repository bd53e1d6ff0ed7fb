#pragma once

#include <string>

#include "kernels/gemm.h"
#include "runtime/device.h"

namespace shardplan::cpu {

/// Runs a kernel of kernels/kernels.h on the operands of a launch. Operands are in the order of the
/// operator catalogue; a written operand that is also among the reads after the kernel's own is
/// added to. Operands in bfloat16 are widened into the launch's last workspace, where the kernel
/// runs in float32, and results rounded once. Throws InputError when the launch has other operands
/// than the kernel takes.
void launch(Gemm gemm, const Launch& launch);

/// What the CPU lacks to run that kernel with those attributes, e.g. "rope with rope_yarn"; empty
/// when nothing.
std::string missing_kernel(Kernel kernel, const Attributes& attributes);

}  // namespace shardplan::cpu
