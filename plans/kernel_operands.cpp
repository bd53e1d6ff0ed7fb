#include "plans/kernel_operands.h"

#include <fmt/format.h>

#include <cmath>

namespace shardplan {
namespace {

constexpr double kLargestCount = 4294967296.0;  // 2^32: more than any extent of a tensor

bool is_attention(Kernel kernel) {
  switch (kernel) {
    case Kernel::Attention:
    case Kernel::AttentionBackward:
    case Kernel::PackedAttention:
    case Kernel::PackedAttentionBackward: return true;
    default: return false;
  }
}

/// All others count something, or say 0 or 1.
bool is_real(Attribute attribute) {
  switch (attribute) {
    case Attribute::Scale:
    case Attribute::Epsilon:
    case Attribute::RopeTheta:
    case Attribute::RopeFactor:
    case Attribute::RopeLowFrequency:
    case Attribute::RopeHighFrequency:
    case Attribute::RopeOriginalContext:
    case Attribute::LossScale:
    case Attribute::Beta1:
    case Attribute::Beta2:
    case Attribute::WeightDecay:
    case Attribute::Momentum:
    case Attribute::MaxNorm: return true;
    default: return false;
  }
}

/// Kernels that add to what they write when it is among the operands read, too.
bool accumulates(Kernel kernel) {
  switch (kernel) {
    case Kernel::EmbeddingBackward:
    case Kernel::PositionEmbeddingBackward:
    case Kernel::RmsNormBackward:
    case Kernel::LayerNormBackward:
    case Kernel::LinearBackwardInput:
    case Kernel::LinearBackwardWeight:
    case Kernel::LinearBackwardBias:
    case Kernel::CrossEntropy: return true;
    default: return false;
  }
}

const OperandType kAny = OperandType::of_any_size();
const OperandType kSum{1, Dtype::Float64};  // sums over many elements are in float64
OperandType tokens(Extent rows) { return {rows, Dtype::Int32}; }

OperandTypes norm_types(const Attributes& a, Extent rows, int statistics, bool backward) {
  const Extent width = a.integer(Attribute::OutFeatures);
  const Extent groups = rows * a.integer(Attribute::GroupsPerRow, 1);
  const Extent elems = groups * width;
  OperandTypes sizes;
  if (backward) {
    sizes = {{elems, elems, width}, {elems, width}};
    sizes.reads.insert(sizes.reads.end(), statistics, groups);
    if (statistics == 2) sizes.writes.push_back(width);  // LayerNorm's bias
    return sizes;
  }
  sizes = {{elems, width}, {elems}};
  if (statistics == 2) sizes.reads.push_back(width);
  sizes.writes.insert(sizes.writes.end(), statistics, groups);
  return sizes;
}

OperandTypes attention_types(const Attributes& a, Extent rows, bool packed, bool backward) {
  const Extent query = rows * a.integer(Attribute::Heads) * a.integer(Attribute::HeadDim);
  const Extent key = rows * a.integer(Attribute::KvHeads) * a.integer(Attribute::HeadDim);
  const Extent lse = rows * a.integer(Attribute::Heads);
  const std::vector<OperandType> inputs = packed ? std::vector<OperandType>{query + key + key}
                                                 : std::vector<OperandType>{query, key, key};
  OperandTypes sizes{inputs, {query, lse}};
  if (backward) {
    sizes.reads.insert(sizes.reads.begin(), query);
    sizes.reads.insert(sizes.reads.end(), {query, lse});
    sizes.writes = inputs;
  }
  return sizes;
}

OperandTypes own_operands(Kernel kernel, const Attributes& a) {
  const Extent rows = Extent(a.integer(Attribute::Batch)) * a.integer(Attribute::Time);
  const Extent one = 1;
  const Extent in = a.integer(Attribute::InFeatures);
  const Extent out = a.integer(Attribute::OutFeatures);
  const Extent heads = rows * a.integer(Attribute::Heads) * a.integer(Attribute::HeadDim);
  switch (kernel) {
    case Kernel::Embedding: return {{tokens(rows), in * out}, {rows * out}};
    case Kernel::EmbeddingBackward: return {{rows * out, tokens(rows)}, {in * out}};
    case Kernel::PositionEmbedding: return {{rows * out, in * out}, {rows * out}};
    case Kernel::PositionEmbeddingBackward: return {{rows * out}, {in * out}};
    case Kernel::RmsNorm: return norm_types(a, rows, 1, false);
    case Kernel::RmsNormBackward: return norm_types(a, rows, 1, true);
    case Kernel::LayerNorm: return norm_types(a, rows, 2, false);
    case Kernel::LayerNormBackward: return norm_types(a, rows, 2, true);
    case Kernel::Linear: return {{rows * in, in * out, out}, {rows * out}, 1};
    case Kernel::LinearBackwardInput: return {{rows * out, in * out}, {rows * in}};
    case Kernel::LinearBackwardWeight: return {{rows * out, rows * in}, {in * out}};
    case Kernel::LinearBackwardBias: return {{rows * out}, {out}};
    case Kernel::Rope:
    case Kernel::RopeBackward: return {{heads}, {heads}};
    case Kernel::Attention: return attention_types(a, rows, false, false);
    case Kernel::AttentionBackward: return attention_types(a, rows, false, true);
    case Kernel::PackedAttention: return attention_types(a, rows, true, false);
    case Kernel::PackedAttentionBackward: return attention_types(a, rows, true, true);
    case Kernel::SwiGlu: return {{rows * out, rows * out}, {rows * out}};
    case Kernel::SwiGluBackward:
      return {{rows * out, rows * out, rows * out}, {rows * out, rows * out}};
    case Kernel::Gelu: return {{rows * out}, {rows * out}};
    case Kernel::GeluBackward: return {{rows * out, rows * out}, {rows * out}};
    case Kernel::Add: return {.reads = {kAny, kAny}, .writes = {kAny}, .one_size = true};
    case Kernel::Scale: return {.reads = {kAny}, .writes = {kAny}, .one_size = true};
    case Kernel::CrossEntropy: return {{rows * in, tokens(rows)}, {kSum, rows * in}};
    case Kernel::SumSquares: return {.reads = {}, .writes = {kSum}, .more_reads = kAny};
    case Kernel::GradientNorm: return {{kSum}, {one, one}};
    case Kernel::Adam:
      return {
          .reads = {kAny, one, kAny, kAny, kAny}, .writes = {kAny, kAny, kAny}, .one_size = true};
    case Kernel::Sgd:
      return {.reads = {kAny, one, kAny, kAny},
              .writes = {kAny, kAny},
              .optional_reads = 1,
              .optional_writes = 1,
              .one_size = true};
  }
  return {};
}

}  // namespace

OperandTypes operand_types(Kernel kernel, const Attributes& attributes, Profile profile) {
  OperandTypes types = own_operands(kernel, attributes);
  types.may_be_narrow =
      kernel != Kernel::SumSquares && kernel != Kernel::GradientNorm && !is_optimizer(kernel);
  types.accumulates = accumulates(kernel);
  const Extent workspace = workspace_elems(kernel, attributes, profile);
  if (workspace != Extent(0)) types.writes.push_back(workspace);
  return types;
}

std::string attribute_fault(Kernel kernel, const Attributes& attributes, Profile profile) {
  for (const auto& [attribute, value] : attributes.entries()) {
    if (is_real(attribute) ? std::isfinite(value)
                           : value >= 0 && value <= kLargestCount && value == std::floor(value))
      continue;
    return fmt::format("attribute {} is {}, expected {}", to_string(attribute), value,
                       is_real(attribute) ? "a number" : "a whole number from 0 to 2^32");
  }
  const auto count = [&](Attribute attribute) { return attributes.integer(attribute); };
  if (is_attention(kernel)) {
    if (count(Attribute::KvHeads) < 1 || count(Attribute::Heads) % count(Attribute::KvHeads) != 0)
      return fmt::format("{} heads do not share {} keys evenly", count(Attribute::Heads),
                         count(Attribute::KvHeads));
    if (profile != Profile::Cuda && count(Attribute::BlockRows) < 1)
      return "attribute block_rows is missing or 0, expected the rows of a tile";
  }
  const bool learns_positions =
      kernel == Kernel::PositionEmbedding || kernel == Kernel::PositionEmbeddingBackward;
  if (learns_positions && count(Attribute::Time) > count(Attribute::InFeatures))
    return "reads more positions than there are";
  const bool rotates = kernel == Kernel::Rope || kernel == Kernel::RopeBackward;
  if (rotates && count(Attribute::HeadDim) % 2 != 0)
    return fmt::format("head_dim is {}, expected an even number: pairs are rotated",
                       count(Attribute::HeadDim));
  return "";
}

}  // namespace shardplan
