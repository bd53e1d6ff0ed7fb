#include "plans/kernel_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shardplan {
namespace {

constexpr double kLargestCount = 4294967296.0;  // 2^32: more than any extent of a tensor

/// All others count something, or say 0 or 1.
bool is_real(Attribute attribute) {
  switch (attribute) {
    case Attribute::Scale:
    case Attribute::SoftCap:
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

const OperandType kAny = OperandType::of_any_size();
const OperandType kSum{1, Dtype::Float64};  // sums over many elements are in float64
OperandType tokens(Extent rows) { return {rows, Dtype::Int32}; }

/// Elements of a convolution's weight per pair of channels.
Extent kernel_area(const Attributes& a) {
  Extent area = 1;
  for (const Attribute side : {Attribute::Height, Attribute::Width})
    if (a.integer(side, 1) > 1) area = area * a.integer(Attribute::KernelSize);
  return area;
}

/// Sizes that the operands of a launch are made of.
struct Sizes {
  explicit Sizes(const Attributes& a)
      : batch(a.integer(Attribute::Batch)),
        time(a.integer(Attribute::Time)),
        source_time(a.integer(Attribute::SourceTime, a.integer(Attribute::Time))),
        rows(rows_of(a)),
        source(batch * source_time),
        in(a.integer(Attribute::InFeatures)),
        out(a.integer(Attribute::OutFeatures)),
        groups(rows * a.integer(Attribute::GroupsPerRow, 1)) {}

  Extent batch;
  Extent time;
  Extent source_time;
  Extent rows;    // of the output
  Extent source;  // of the input
  Extent in;
  Extent out;
  Extent groups;
};

/// Kernels that may be launched on a part of the rows.
bool works_on_any_rows(Kernel kernel) {
  switch (kernel) {
    case Kernel::Linear:
    case Kernel::LinearBackwardInput:
    case Kernel::LinearBackwardWeight:
    case Kernel::LinearBackwardBias:
    case Kernel::CrossEntropy: return true;
    default: return false;
  }
}

OperandTypes norm_types(Kernel kernel, const Attributes& a) {
  const bool is_layer_norm = kernel == Kernel::LayerNorm || kernel == Kernel::LayerNormBackward;
  const auto most = is_layer_norm ? 2 : 1;  // weight and bias; mean and 1/std
  const auto parameters =
      static_cast<int>(std::min<std::int64_t>(a.integer(Attribute::NormParameters, most), most));
  const Sizes size(a);
  const Extent elems = size.groups * size.out;
  const Extent width = a.integer(Attribute::OwnWeights)
                           ? size.out * a.integer(Attribute::GroupsPerRow, 1)
                           : size.out;
  OperandTypes types{{elems}, {elems}};
  if (kernel == Kernel::RmsNorm || kernel == Kernel::LayerNorm) {
    types.reads.insert(types.reads.end(), parameters, width);
    types.writes.insert(types.writes.end(), most, size.groups);
    return types;
  }
  types.reads.emplace_back(elems);
  types.reads.insert(types.reads.end(), std::min(parameters, 1), width);
  types.reads.insert(types.reads.end(), most, size.groups);
  types.writes.insert(types.writes.end(), parameters, width);
  return types;
}

struct AttentionForm {
  bool packed = false;
  bool biased = false;
  bool backward = false;
};

OperandTypes attention_types(const Attributes& a, AttentionForm form) {
  const Sizes size(a);
  const Extent heads = a.integer(Attribute::Heads);
  const Extent kv_heads = a.integer(Attribute::KvHeads);
  const Extent head_dim = a.integer(Attribute::HeadDim);
  const Extent value_dim = a.integer(Attribute::ValueHeadDim, a.integer(Attribute::HeadDim));
  const Extent query = size.rows * heads * head_dim;
  const Extent key = size.source * kv_heads * head_dim;
  const Extent value = size.source * kv_heads * value_dim;
  const Extent mixed = size.rows * heads * value_dim;
  const Extent lse = size.rows * heads;
  std::vector<OperandType> inputs{query, key, value};
  if (form.packed) inputs = {query + key + value};
  if (form.biased) inputs.emplace_back(heads * size.time * size.source_time);
  OperandTypes types{inputs, {mixed, lse}};
  if (form.backward) {
    types.reads.insert(types.reads.begin(), mixed);
    types.reads.insert(types.reads.end(), {mixed, lse});
    types.writes = inputs;
  }
  return types;
}

/// Kernels that choose experts, and move rows to them and back.
OperandTypes mixture_types(Kernel kernel, const Attributes& a) {
  const Sizes size(a);
  const Extent experts = a.integer(Attribute::Experts);
  const Extent routing_row = Extent(2) * a.integer(Attribute::TopK);
  const Extent routing = size.rows * routing_row;
  const Extent source_routing = size.source * routing_row;
  const Extent weight = experts * size.in * size.out;
  const Extent in = size.rows * size.in;
  const Extent out = size.rows * size.out;
  const Extent source = size.source * size.in;
  const Extent pairs = size.rows * 2;  // a sorted row is one choice of its token
  switch (kernel) {
    case Kernel::TopK: return {{size.rows * experts}, {routing}};
    case Kernel::TopKBackward:
      return {{routing, size.rows * experts, routing}, {size.rows * experts}};
    case Kernel::Dispatch: return {{source, source_routing}, {out}};
    case Kernel::DispatchBackward: return {{out, source_routing}, {source}};
    case Kernel::ExpertLinear: return {{in, pairs, weight}, {out}};
    case Kernel::ExpertLinearBackwardInput: return {{out, pairs, weight}, {in}};
    case Kernel::ExpertLinearBackwardWeight: return {{out, in, pairs}, {weight}};
    case Kernel::Combine: return {{source, routing}, {out}};
    default: return {{out, source, routing}, {source, routing}};
  }
}

/// Kernels whose output has another number of tokens than their input.
OperandTypes token_types(Kernel kernel, const Attributes& a) {
  const Sizes size(a);
  const Extent weight = size.in * size.out * kernel_area(a);
  const Extent out = size.rows * size.out;
  const Extent source = size.source * size.out;
  switch (kernel) {
    case Kernel::Convolution: return {{size.source * size.in, weight, size.out}, {out}, 1};
    case Kernel::ConvolutionBackwardInput: return {{out, weight}, {size.source * size.in}};
    case Kernel::ConvolutionBackwardWeight: return {{out, size.source * size.in}, {weight}};
    case Kernel::ConvolutionBackwardBias: return {{out}, {size.out}};
    case Kernel::PrependToken: return {{source, size.out}, {out}};
    case Kernel::PrependTokenBackward: return {{out}, {source, size.out}};
    case Kernel::SliceTokens:
    case Kernel::AveragePool: return {{source}, {out}};
    case Kernel::SliceTokensBackward:
    case Kernel::AveragePoolBackward: return {{out}, {source}};
    case Kernel::MergeTokens: return {{out, source, tokens(size.rows)}, {out}};
    default: return {{out, tokens(size.rows)}, {out, source}};
  }
}

/// Kernels that work on rows one by one.
OperandTypes row_types(Kernel kernel, const Attributes& a) {
  const Sizes size(a);
  const Extent out = size.rows * size.out;
  const Extent second = size.rows * a.integer(Attribute::SecondFeatures);
  switch (kernel) {
    case Kernel::Gelu:
    case Kernel::Relu:
    case Kernel::Silu:
    case Kernel::QuickGelu:
    case Kernel::Tanh:
    case Kernel::Sigmoid:
    case Kernel::SoftCap: return {{out}, {out}};
    case Kernel::GeluBackward:
    case Kernel::ReluBackward:
    case Kernel::SiluBackward:
    case Kernel::QuickGeluBackward:
    case Kernel::TanhBackward:
    case Kernel::SigmoidBackward:
    case Kernel::SoftCapBackward: return {{out, out}, {out}};
    case Kernel::GateRows: return {{out, size.rows}, {out}};
    case Kernel::GateRowsBackward: return {{out, out, size.rows}, {out, size.rows}};
    case Kernel::SwiGlu:
    case Kernel::GeGlu: return {{out, out}, {out}};
    case Kernel::SwiGluBackward:
    case Kernel::GeGluBackward: return {{out, out, out}, {out, out}};
    case Kernel::PackedSwiGlu: return {{out * 2}, {out}};
    case Kernel::PackedSwiGluBackward: return {{out, out * 2}, {out * 2}};
    case Kernel::Slice: return {{size.groups * size.in}, {size.groups * size.out}};
    case Kernel::SliceBackward: return {{size.groups * size.out}, {size.groups * size.in}};
    case Kernel::Concat: return {{size.groups * size.in, second}, {size.groups * size.out}};
    default: return {{size.groups * size.out}, {size.groups * size.in, second}};
  }
}

OperandTypes own_operands(Kernel kernel, const Attributes& a) {
  const Extent rows = rows_of(a);
  const Extent one = 1;
  const Extent in = a.integer(Attribute::InFeatures);
  const Extent out = a.integer(Attribute::OutFeatures);
  const Extent bias = out * a.integer(Attribute::Time) * a.integer(Attribute::Time);
  const Extent heads = rows * a.integer(Attribute::Heads) * a.integer(Attribute::HeadDim);
  switch (kernel) {
    case Kernel::Embedding: return {{tokens(rows), in * out}, {rows * out}};
    case Kernel::EmbeddingBackward: return {{rows * out, tokens(rows)}, {in * out}};
    case Kernel::PositionEmbedding: return {{rows * out, in * out}, {rows * out}};
    case Kernel::PositionEmbeddingBackward: return {{rows * out}, {in * out}};
    case Kernel::RmsNorm:
    case Kernel::RmsNormBackward:
    case Kernel::LayerNorm:
    case Kernel::LayerNormBackward: return norm_types(kernel, a);
    case Kernel::Linear: return {{rows * in, in * out, out}, {rows * out}, 1};
    case Kernel::LinearBackwardInput: return {{rows * out, in * out}, {rows * in}};
    case Kernel::LinearBackwardWeight: return {{rows * out, rows * in}, {in * out}};
    case Kernel::LinearBackwardBias: return {{rows * out}, {out}};
    case Kernel::Rope:
    case Kernel::RopeBackward: return {{heads}, {heads}};
    case Kernel::Attention: return attention_types(a, {});
    case Kernel::AttentionBackward: return attention_types(a, {.backward = true});
    case Kernel::PackedAttention: return attention_types(a, {.packed = true});
    case Kernel::PackedAttentionBackward:
      return attention_types(a, {.packed = true, .backward = true});
    case Kernel::BiasedAttention: return attention_types(a, {.biased = true});
    case Kernel::BiasedAttentionBackward:
      return attention_types(a, {.biased = true, .backward = true});
    case Kernel::RelativePositionBias: return {{in * out}, {bias}};
    case Kernel::RelativePositionBiasBackward: return {{bias}, {in * out}};
    case Kernel::Add: return {.reads = {kAny, kAny}, .writes = {kAny}, .one_size = true};
    case Kernel::Scale: return {.reads = {kAny}, .writes = {kAny}, .one_size = true};
    case Kernel::CrossEntropy: {
      const Extent all = Extent(a.integer(Attribute::Batch)) * a.integer(Attribute::Time);
      return {{rows * in, tokens(all)}, {kSum, rows * in}};
    }
    case Kernel::Elementwise: return {.reads = {}, .writes = {}, .more_reads = kAny};
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
    default: break;
  }
  // Kernels are listed by what they work on.
  if (kernel >= Kernel::Convolution) return token_types(kernel, a);
  if (kernel >= Kernel::TopK) return mixture_types(kernel, a);
  return row_types(kernel, a);
}

}  // namespace

bool accumulates(Kernel kernel) {
  switch (kernel) {
    case Kernel::EmbeddingBackward:
    case Kernel::PositionEmbeddingBackward:
    case Kernel::RmsNormBackward:
    case Kernel::LayerNormBackward:
    case Kernel::LinearBackwardInput:
    case Kernel::LinearBackwardWeight:
    case Kernel::LinearBackwardBias:
    case Kernel::CrossEntropy:
    case Kernel::SliceBackward:
    case Kernel::RelativePositionBiasBackward:
    case Kernel::DispatchBackward:
    case Kernel::ExpertLinearBackwardInput:
    case Kernel::ExpertLinearBackwardWeight:
    case Kernel::CombineBackward:
    case Kernel::ConvolutionBackwardInput:
    case Kernel::ConvolutionBackwardWeight:
    case Kernel::ConvolutionBackwardBias:
    case Kernel::PrependTokenBackward:
    case Kernel::MergeTokensBackward: return true;
    default: return false;
  }
}

OperandTypes operand_types(Kernel kernel, const Attributes& attributes, Profile profile) {
  OperandTypes types = own_operands(kernel, attributes);
  types.may_be_narrow =
      kernel != Kernel::SumSquares && kernel != Kernel::GradientNorm && !is_optimizer(kernel);
  types.accumulates = accumulates(kernel);
  const Extent workspace = workspace_elems(kernel, attributes, profile);
  if (workspace != Extent(0)) types.writes.emplace_back(workspace);
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
  if (attributes.has(Attribute::Rows) || attributes.has(Attribute::FirstRow)) {
    const Extent all = Extent(count(Attribute::Batch)) * count(Attribute::Time);
    if (!works_on_any_rows(kernel)) return fmt::format("{} takes all rows", to_string(kernel));
    if ((rows_of(attributes) + count(Attribute::FirstRow)).value() > all.value())
      return fmt::format("works on rows beyond the {} that there are", all.value());
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
