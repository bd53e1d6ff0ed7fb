#pragma once

#include <cstdint>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/units.h"

namespace shardplan {

/// Dense FLOP/s of the GPU's matrix products on operands of `dtype`, rounded to `operand_bits`
/// first (0: they are not); a GPU without units for 16 bits computes in float32.
double matmul_flops_per_s(const GpuSpec& gpu, Dtype dtype, std::int64_t operand_bits = 0);

/// What large products of such operands sustain of it.
double reachable_flops_per_s(const GpuSpec& gpu, Dtype dtype, const CostConstants& costs,
                             std::int64_t operand_bits = 0);

/// Share of an instruction's launch and traffic that is left of it in the kernel that it is
/// compiled into; 1: it is a kernel of its own.
double launched_share(const Instruction& instruction, const CostConstants& costs);

/// Bytes that an instruction reads and writes: its operands, but of an embedding's table only the
/// rows that the batch picks.
Bytes bytes_moved(const Plan& plan, const Instruction& instruction);

/// Time of a compute, copy, fill, read or write instruction by the roofline model (Williams,
/// Waterman and Patterson, 2009): the launch, then the slower of its arithmetic and its traffic,
/// both at the share of the GPU's rates that `costs` gives for its shape. Traffic between device
/// and host memory goes over PCIe.
Seconds compute_time(const Plan& plan, const Instruction& instruction, const CostConstants& costs);

/// Time to move `bytes` within device memory.
Seconds memory_time(Bytes bytes, const GpuSpec& gpu, const CostConstants& costs);

}  // namespace shardplan
