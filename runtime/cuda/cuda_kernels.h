#pragma once

#include <cuda_runtime.h>

#include <span>
#include <string>

#include "kernels/arithmetic.h"
#include "kernels/cuda/linear.h"
#include "runtime/device.h"

namespace shardplan::cuda {

/// What kernels of a stream use besides their operands.
struct KernelContext {
  cudaStream_t stream;
  Products& products;
  std::span<double> partials;        // kPartials of them
  std::span<const StepFactors> now;  // the step's
};

/// Launches a kernel of kernels/cuda on the operands of a launch. Operands are in the order of the
/// operator catalogue; a written operand that is also among the reads after the kernel's own is
/// added to. Throws InputError when the launch has other operands than the kernel takes,
/// SystemError when the device refuses.
void launch(const KernelContext& context, const Launch& launch);

/// What our CUDA kernels lack to run that kernel with those attributes; empty when nothing.
std::string missing_kernel(Kernel kernel, const Attributes& attributes);

/// The operand as kernels see it.
ConstFloats const_floats(const Operand& operand);
Floats floats(const Operand& operand);
template <typename T>
std::span<T> elements(const Operand& operand) {
  return {reinterpret_cast<T*>(operand.data), static_cast<std::size_t>(operand.elems)};
}

}  // namespace shardplan::cuda
