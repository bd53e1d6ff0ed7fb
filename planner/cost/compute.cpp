#include "planner/cost/compute.h"

#include <algorithm>
#include <variant>

#include "plans/operators.h"

namespace shardplan {
namespace {

bool looks_rows_up(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  return compute != nullptr &&
         (compute->kernel == Kernel::Embedding || compute->kernel == Kernel::PositionEmbedding);
}

Seconds arithmetic_time(const Plan& plan, const Instruction& instruction,
                        const CostConstants& costs) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  if (compute == nullptr || !is_matrix_product(compute->kernel) || instruction.reads.empty())
    return 0;
  const Dtype dtype = plan.buffers[instruction.reads.front().buffer].dtype;
  const double efficiency =
      is_attention(compute->kernel) ? costs.attention_efficiency : costs.matmul_efficiency;
  return flops_of(compute->kernel, compute->attributes) /
         (matmul_flops_per_s(plan.job.cluster.gpu, dtype) * efficiency);
}

/// True for what moves bytes between the device's memory and another.
bool crosses_pcie(const Plan& plan, const Instruction& instruction) {
  if (std::holds_alternative<Read>(instruction.operation) ||
      std::holds_alternative<Write>(instruction.operation))
    return true;
  for (const auto* views : {&instruction.reads, &instruction.writes})
    for (const View& view : *views)
      if (plan.buffers[view.buffer].space != Space::Device) return true;
  return false;
}

}  // namespace

double matmul_flops_per_s(const GpuSpec& gpu, Dtype dtype) {
  const bool narrow = dtype == Dtype::BFloat16 || dtype == Dtype::Float16;
  return narrow && gpu.matmul_flops_bf16 > 0 ? gpu.matmul_flops_bf16 : gpu.matmul_flops_fp32;
}

Bytes bytes_moved(const Plan& plan, const Instruction& instruction) {
  Bytes written = 0;
  for (const View& view : instruction.writes)
    written += bytes_of(plan, view);
  Bytes read = 0;
  const bool picks = looks_rows_up(instruction);
  for (const View& view : instruction.reads)
    read += picks ? std::min(bytes_of(plan, view), written) : bytes_of(plan, view);
  return read + written;
}

Seconds memory_time(Bytes bytes, const GpuSpec& gpu, const CostConstants& costs) {
  return static_cast<double>(bytes) / (gpu.memory_bandwidth_bytes_per_s * costs.memory_efficiency);
}

Seconds compute_time(const Plan& plan, const Instruction& instruction, const CostConstants& costs) {
  const GpuSpec& gpu = plan.job.cluster.gpu;
  const Bytes bytes = bytes_moved(plan, instruction);
  const Seconds traffic = crosses_pcie(plan, instruction)
                              ? static_cast<double>(bytes) / gpu.pcie_bytes_per_s
                              : memory_time(bytes, gpu, costs);
  return costs.kernel_latency_s + std::max(arithmetic_time(plan, instruction, costs), traffic);
}

}  // namespace shardplan
