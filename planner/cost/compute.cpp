#include "planner/cost/compute.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "plans/operators.h"

namespace shardplan {
namespace {

constexpr double kFullHead = 128;  // columns of a head for which attention's shares are

bool looks_rows_up(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  return compute != nullptr &&
         (compute->kernel == Kernel::Embedding || compute->kernel == Kernel::PositionEmbedding);
}

/// Rows, columns and inner extent of a matrix product.
struct Product {
  double rows = 1;
  double columns = 1;
  double inner = 1;
};

Product product_of(Kernel kernel, const Attributes& a) {
  const auto rows = static_cast<double>(rows_of(a).value());
  const double in = a.real(Attribute::InFeatures);
  const double out = a.real(Attribute::OutFeatures);
  switch (kernel) {
    case Kernel::LinearBackwardInput:
    case Kernel::ExpertLinearBackwardInput: return {rows, in, out};
    case Kernel::LinearBackwardWeight:
    case Kernel::ExpertLinearBackwardWeight: return {out, in, rows};
    default: return {rows, out, in};
  }
}

/// Share of the matmul rate that a product of such a shape reaches: tiles that reach over its edge
/// and a last wave that leaves multiprocessors idle are lost, and each tile's start and end, for
/// which narrow operands bring `ramp_scale` times the elements in the same time.
double product_share(const Product& product, double ramp_scale, int multiprocessors,
                     const CostConstants& costs) {
  if (costs.product_tiles.empty() || multiprocessors == 0) return 1;
  double best = 0;
  for (const ProductTile& tile : costs.product_tiles) {
    const double tiles = std::ceil(product.rows / static_cast<double>(tile.rows)) *
                         std::ceil(product.columns / static_cast<double>(tile.columns));
    const double covered =
        product.rows * product.columns / (tiles * static_cast<double>(tile.rows * tile.columns));
    for (const int parts : {1, 2, 4, 8}) {
      const double inner = product.inner / parts;
      const double waves = tiles * parts / multiprocessors;
      const double ramp = inner / (inner + ramp_scale * costs.product_ramp_elems);
      const double split = parts == 1 ? 1 : costs.product_split_share;
      best = std::max(best, tile.share * covered * waves / std::ceil(waves) * ramp * split);
    }
  }
  return best;
}

double attention_share(const Plan& plan, const Compute& compute, const CostConstants& costs) {
  const AttentionEfficiency& attention = costs.attention;
  const bool new_kernels = plan.job.training.attention_kernel == AttentionKernel::Flash3;
  double share = attention.flash2;
  if (plan.job.cluster.gpu.has_asynchronous_tensor_cores())
    share = new_kernels ? attention.flash3_asynchronous : attention.flash2_asynchronous;
  const double columns = compute.attributes.real(Attribute::HeadDim);
  const double time = compute.attributes.real(Attribute::Time);
  share *= std::pow(std::min(columns, kFullHead) / kFullHead, attention.head_dim_power);
  share *= attention.scale * time / (time + attention.ramp_tokens);
  return is_attention_backward(compute.kernel) ? share * attention.backward : share;
}

/// Operations that the kernel does: one that does not skip what the mask hides does all.
double attention_flops(const Plan& plan, const Compute& compute) {
  if (plan.job.training.attention_kernel != AttentionKernel::FlashUnmasked)
    return flops_of(compute.kernel, compute.attributes);
  Attributes whole = compute.attributes;
  whole.set(Attribute::Bidirectional, 1);
  return flops_of(compute.kernel, whole);
}

Seconds arithmetic_time(const Plan& plan, const Instruction& instruction,
                        const CostConstants& costs) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  if (compute == nullptr || !is_matrix_product(compute->kernel) || instruction.reads.empty())
    return 0;
  const GpuSpec& gpu = plan.job.cluster.gpu;
  const std::int64_t bits = compute->attributes.integer(Attribute::OperandBits);
  const Dtype dtype = plan.buffers[instruction.reads.front().buffer].dtype;
  const double rate = reachable_flops_per_s(gpu, dtype, costs, bits);
  if (is_attention(compute->kernel))
    return attention_flops(plan, *compute) / (rate * attention_share(plan, *compute, costs));
  const Product product = product_of(compute->kernel, compute->attributes);
  const double ramp_scale = bits > 0 ? 16.0 / static_cast<double>(bits) : 1;
  return flops_of(compute->kernel, compute->attributes) /
         (rate * costs.matmul_efficiency *
          product_share(product, ramp_scale, gpu.multiprocessors, costs));
}

/// Bytes moved ahead of a product to round its operands to fewer bits. That for a weight's gradient
/// finds both rounded.
Bytes cast_bytes(const Instruction& instruction, const CostConstants& costs) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  if (compute == nullptr || !compute->attributes.has(Attribute::OperandBits)) return 0;
  if (compute->kernel != Kernel::Linear && compute->kernel != Kernel::LinearBackwardInput) return 0;
  std::int64_t elems = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, instruction.reads.size()); ++i)
    elems += instruction.reads[i].elems;
  return static_cast<Bytes>(costs.narrow_cast_bytes * static_cast<double>(elems));
}

/// Bytes that an instruction moves between the device's memory and another.
Bytes bytes_over_pcie(const Plan& plan, const Instruction& instruction) {
  if (std::holds_alternative<Read>(instruction.operation) ||
      std::holds_alternative<Write>(instruction.operation))
    return bytes_moved(plan, instruction);
  Bytes bytes = 0;
  for (const auto* views : {&instruction.reads, &instruction.writes})
    for (const View& view : *views)
      if (plan.buffers[view.buffer].space != Space::Device) bytes += bytes_of(plan, view);
  return bytes;
}

}  // namespace

double matmul_flops_per_s(const GpuSpec& gpu, Dtype dtype, std::int64_t operand_bits) {
  if (operand_bits == 4) return gpu.matmul_flops_fp4;
  if (operand_bits == 8) return gpu.matmul_flops_fp8;
  const bool narrow = dtype == Dtype::BFloat16 || dtype == Dtype::Float16;
  return narrow && gpu.matmul_flops_bf16 > 0 ? gpu.matmul_flops_bf16 : gpu.matmul_flops_fp32;
}

double reachable_flops_per_s(const GpuSpec& gpu, Dtype dtype, const CostConstants& costs,
                             std::int64_t operand_bits) {
  if (operand_bits > 0)  // what power and clocks leave of the wide products' rate they leave of it
    return reachable_flops_per_s(gpu, Dtype::BFloat16, costs) * costs.narrow_matmul_share *
           matmul_flops_per_s(gpu, dtype, operand_bits) / gpu.matmul_flops_bf16;
  const double peak = matmul_flops_per_s(gpu, dtype);
  const bool measured = peak == gpu.matmul_flops_bf16 && gpu.reachable_matmul_flops_bf16 > 0;
  const double rate =
      measured ? gpu.reachable_matmul_flops_bf16 : peak * costs.unmeasured_matmul_share;
  return gpu.has_asynchronous_tensor_cores() ? rate * costs.asynchronous_matmul_share : rate;
}

double launched_share(const Instruction& instruction, const CostConstants& costs) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  const bool fused = compute != nullptr && compute->attributes.has(Attribute::Fused);
  return fused ? costs.fused_share : 1;
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
  const Bytes over_pcie = bytes_over_pcie(plan, instruction);
  const Seconds traffic = over_pcie > 0 ? static_cast<double>(over_pcie) / gpu.pcie_bytes_per_s
                                        : memory_time(bytes_moved(plan, instruction), gpu, costs);
  const Seconds busy = std::max(arithmetic_time(plan, instruction, costs), traffic) +
                       memory_time(cast_bytes(instruction, costs), gpu, costs);
  return (costs.kernel_latency_s + busy) * launched_share(instruction, costs);
}

}  // namespace shardplan
