#include "plans/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "plans/error.h"
#include "plans/names.h"

namespace shardplan {
namespace {

constexpr std::array kAttributeNames{
    EnumName{Attribute::Batch, "batch"},
    EnumName{Attribute::Time, "time"},
    EnumName{Attribute::InFeatures, "in_features"},
    EnumName{Attribute::OutFeatures, "out_features"},
    EnumName{Attribute::Heads, "heads"},
    EnumName{Attribute::KvHeads, "kv_heads"},
    EnumName{Attribute::HeadDim, "head_dim"},
    EnumName{Attribute::Scale, "scale"},
    EnumName{Attribute::Window, "window"},
    EnumName{Attribute::Epsilon, "epsilon"},
    EnumName{Attribute::RopeTheta, "rope_theta"},
    EnumName{Attribute::RopeFactor, "rope_factor"},
    EnumName{Attribute::RopeLowFrequency, "rope_low_frequency"},
    EnumName{Attribute::RopeHighFrequency, "rope_high_frequency"},
    EnumName{Attribute::RopeOriginalContext, "rope_original_context"},
    EnumName{Attribute::WeightTransposed, "weight_transposed"},
    EnumName{Attribute::TanhApproximation, "tanh_approximation"},
    EnumName{Attribute::GroupsPerRow, "groups_per_row"},
    EnumName{Attribute::BlockRows, "block_rows"},
    EnumName{Attribute::LossScale, "loss_scale"},
    EnumName{Attribute::Beta1, "beta1"},
    EnumName{Attribute::Beta2, "beta2"},
    EnumName{Attribute::WeightDecay, "weight_decay"},
    EnumName{Attribute::DecoupledDecay, "decoupled_decay"},
    EnumName{Attribute::Momentum, "momentum"},
    EnumName{Attribute::MaxNorm, "max_norm"},
};

constexpr std::array kKernelNames{
    EnumName{Kernel::Embedding, "embedding"},
    EnumName{Kernel::EmbeddingBackward, "embedding_backward"},
    EnumName{Kernel::PositionEmbedding, "position_embedding"},
    EnumName{Kernel::PositionEmbeddingBackward, "position_embedding_backward"},
    EnumName{Kernel::RmsNorm, "rms_norm"},
    EnumName{Kernel::RmsNormBackward, "rms_norm_backward"},
    EnumName{Kernel::LayerNorm, "layer_norm"},
    EnumName{Kernel::LayerNormBackward, "layer_norm_backward"},
    EnumName{Kernel::Linear, "linear"},
    EnumName{Kernel::LinearBackwardInput, "linear_backward_input"},
    EnumName{Kernel::LinearBackwardWeight, "linear_backward_weight"},
    EnumName{Kernel::LinearBackwardBias, "linear_backward_bias"},
    EnumName{Kernel::Rope, "rope"},
    EnumName{Kernel::RopeBackward, "rope_backward"},
    EnumName{Kernel::Attention, "attention"},
    EnumName{Kernel::AttentionBackward, "attention_backward"},
    EnumName{Kernel::PackedAttention, "packed_attention"},
    EnumName{Kernel::PackedAttentionBackward, "packed_attention_backward"},
    EnumName{Kernel::SwiGlu, "swiglu"},
    EnumName{Kernel::SwiGluBackward, "swiglu_backward"},
    EnumName{Kernel::Gelu, "gelu"},
    EnumName{Kernel::GeluBackward, "gelu_backward"},
    EnumName{Kernel::Add, "add"},
    EnumName{Kernel::Scale, "scale"},
    EnumName{Kernel::CrossEntropy, "cross_entropy"},
    EnumName{Kernel::SumSquares, "sum_squares"},
    EnumName{Kernel::GradientNorm, "gradient_norm"},
    EnumName{Kernel::Adam, "adam"},
    EnumName{Kernel::Sgd, "sgd"},
};

constexpr std::array kProfileNames{
    EnumName{Profile::CpuOneDnn, "cpu-onednn"},
    EnumName{Profile::CpuReference, "cpu-reference"},
    EnumName{Profile::Cuda, "cuda"},
    EnumName{Profile::TorchEager, "torch-eager"},
    EnumName{Profile::TorchCompile, "torch-compile"},
};

using Kind = Role::Kind;
constexpr Role in(int i) { return {Kind::Input, i}; }
constexpr Role param(int i) { return {Kind::Parameter, i}; }
constexpr Role stat(int i) { return {Kind::Statistic, i}; }
constexpr Role grad_in(int i) { return {Kind::InputGradient, i}; }
constexpr Role grad_param(int i) { return {Kind::ParameterGradient, i}; }
constexpr Role out{Kind::Output, 0};
constexpr Role grad_out{Kind::OutputGradient, 0};
constexpr Role workspace{Kind::Workspace, 0};

/// The operator catalogue. To add an operator: a row here, its shape and work below, its kernels in
/// kernels/kernels.h and kernels/cpu, and their launch in runtime/cpu_kernels.cpp.
const std::vector<OperatorSpec>& catalogue() {
  static const std::vector<OperatorSpec> specs{
      {OperatorKind::Input, "input", {}, {}},
      {OperatorKind::Embedding,
       "embedding",
       {{Kernel::Embedding, {in(0), param(0)}, {out}}},
       {{Kernel::EmbeddingBackward, {grad_out, in(0)}, {grad_param(0)}}}},
      {.kind = OperatorKind::PositionEmbedding,
       .name = "position_embedding",
       .forward = {{Kernel::PositionEmbedding, {in(0), param(0)}, {out}}},
       .backward = {{Kernel::PositionEmbeddingBackward, {grad_out}, {grad_param(0)}}},
       .in_place_input = 0,
       .gradient_passes_through = true},
      {OperatorKind::RmsNorm,
       "rms_norm",
       {{Kernel::RmsNorm, {in(0), param(0)}, {out, stat(0)}}},
       {{Kernel::RmsNormBackward,
         {grad_out, in(0), param(0), stat(0)},
         {grad_in(0), grad_param(0)}}}},
      {OperatorKind::LayerNorm,
       "layer_norm",
       {{Kernel::LayerNorm, {in(0), param(0), param(1)}, {out, stat(0), stat(1)}}},
       {{Kernel::LayerNormBackward,
         {grad_out, in(0), param(0), stat(0), stat(1)},
         {grad_in(0), grad_param(0), grad_param(1)}}}},
      {OperatorKind::Linear,
       "linear",
       {{Kernel::Linear, {in(0), param(0), param(1)}, {out}}},
       {{Kernel::LinearBackwardWeight, {grad_out, in(0)}, {grad_param(0)}},
        {Kernel::LinearBackwardBias, {grad_out}, {grad_param(1)}},
        {Kernel::LinearBackwardInput, {grad_out, param(0)}, {grad_in(0)}}}},
      {.kind = OperatorKind::Rope,
       .name = "rope",
       .forward = {{Kernel::Rope, {in(0)}, {out}}},
       .backward = {{Kernel::RopeBackward, {grad_out}, {grad_in(0)}}},
       .in_place_input = 0},
      {OperatorKind::Attention,
       "attention",
       {{Kernel::Attention, {in(0), in(1), in(2)}, {out, stat(0), workspace}}},
       {{Kernel::AttentionBackward,
         {grad_out, in(0), in(1), in(2), out, stat(0)},
         {grad_in(0), grad_in(1), grad_in(2), workspace}}}},
      {OperatorKind::PackedAttention,
       "packed_attention",
       {{Kernel::PackedAttention, {in(0)}, {out, stat(0), workspace}}},
       {{Kernel::PackedAttentionBackward,
         {grad_out, in(0), out, stat(0)},
         {grad_in(0), workspace}}}},
      {OperatorKind::SwiGlu,
       "swiglu",
       {{Kernel::SwiGlu, {in(0), in(1)}, {out}}},
       {{Kernel::SwiGluBackward, {grad_out, in(0), in(1)}, {grad_in(0), grad_in(1)}}}},
      {OperatorKind::Gelu,
       "gelu",
       {{Kernel::Gelu, {in(0)}, {out}}},
       {{Kernel::GeluBackward, {grad_out, in(0)}, {grad_in(0)}}}},
      {.kind = OperatorKind::Add,
       .name = "add",
       .forward = {{Kernel::Add, {in(0), in(1)}, {out}}},
       .backward = {},
       .in_place_input = 1,
       .gradient_passes_through = true},
      {.kind = OperatorKind::Scale,
       .name = "scale",
       .forward = {{Kernel::Scale, {in(0)}, {out}}},
       .backward = {{Kernel::Scale, {grad_out}, {grad_in(0)}}},
       .in_place_input = 0},
      {.kind = OperatorKind::CrossEntropy,
       .name = "cross_entropy",
       .forward = {{Kernel::CrossEntropy, {in(0), in(1)}, {out, grad_in(0)}}},
       .backward = {},
       .gradient_in_forward = true},
  };
  return specs;
}

std::int64_t last_extent(const TensorType& type) { return type.dimensions.back().constant; }

void require(bool fits, OperatorKind kind, std::string_view what) {
  if (!fits) throw InputError(fmt::format("operator {}: {}", spec(kind).name, what));
}

double causal_pairs(const Attributes& a) {
  const double time = a.real(Attribute::Time);
  const double window = a.real(Attribute::Window);
  if (window > 0 && window < time) return window * (window + 1) / 2 + (time - window) * window;
  return time * (time + 1) / 2;
}

/// Multiply-adds of Q K^T and P V together: 4 D per pair of tokens and head, counted as two each.
double attention_flops(const Attributes& a) {
  return a.real(Attribute::Batch) * a.real(Attribute::Heads) * causal_pairs(a) * 4 *
         a.real(Attribute::HeadDim);
}

}  // namespace

std::string_view to_string(Attribute attribute) { return name_of(kAttributeNames, attribute); }
Attribute attribute_from(std::string_view name) {
  return value_of(kAttributeNames, name, "attribute");
}
std::string_view to_string(Kernel kernel) { return name_of(kKernelNames, kernel); }
Kernel kernel_from(std::string_view name) { return value_of(kKernelNames, name, "kernel"); }
std::string_view to_string(Profile profile) { return name_of(kProfileNames, profile); }
Profile profile_from(std::string_view name) { return value_of(kProfileNames, name, "profile"); }

std::int64_t TensorType::elements(Sizes sizes) const {
  std::int64_t product = 1;
  for (const Dimension& dimension : dimensions)
    product *= dimension.at(sizes);
  return product;
}

TensorType activation(std::int64_t channels, Dtype dtype) {
  return {dtype, {{1, true, false}, {1, false, true}, {channels, false, false}}};
}

void Attributes::set(Attribute attribute, double value) {
  for (auto& [key, old] : entries_) {
    if (key != attribute) continue;
    old = value;
    return;
  }
  entries_.emplace_back(attribute, value);
}

bool Attributes::has(Attribute attribute) const {
  return std::ranges::any_of(entries_, [&](const auto& entry) { return entry.first == attribute; });
}

double Attributes::real(Attribute attribute, double otherwise) const {
  for (const auto& [key, value] : entries_)
    if (key == attribute) return value;
  return otherwise;
}

std::span<const OperatorSpec> operator_catalogue() { return catalogue(); }

const OperatorSpec& spec(OperatorKind kind) {
  const OperatorSpec& found = catalogue()[static_cast<std::size_t>(kind)];
  check(found.kind == kind, "the operator catalogue is in the order of OperatorKind");
  return found;
}

OperatorKind operator_kind_from(std::string_view name) {
  std::vector<std::string> known;
  for (const OperatorSpec& one : catalogue()) {
    if (one.name == name) return one.kind;
    known.emplace_back(one.name);
  }
  throw InputError(unknown_name("operator", name, known));
}

TensorType infer_output(OperatorKind kind, const Attributes& a,
                        std::span<const TensorType> inputs) {
  const auto channels = [&](std::size_t i) { return last_extent(inputs[i]); };
  const std::int64_t width = a.integer(Attribute::OutFeatures);
  const std::int64_t query = a.integer(Attribute::Heads) * a.integer(Attribute::HeadDim);
  const std::int64_t key = a.integer(Attribute::KvHeads) * a.integer(Attribute::HeadDim);
  switch (kind) {
    case OperatorKind::Input: return {Dtype::Int32, {{1, true, false}, {1, false, true}}};
    case OperatorKind::Embedding: return activation(width);
    case OperatorKind::PositionEmbedding:
      require(channels(0) == width, kind, "positions and input differ in channels");
      return inputs[0];
    case OperatorKind::RmsNorm:
    case OperatorKind::LayerNorm:
      require(channels(0) == width * a.integer(Attribute::GroupsPerRow, 1), kind,
              "the weight does not fit the input's channels");
      return inputs[0];
    case OperatorKind::Linear:
      require(channels(0) == a.integer(Attribute::InFeatures), kind,
              fmt::format("expects {} input features, gets {}", a.integer(Attribute::InFeatures),
                          channels(0)));
      return activation(width);
    case OperatorKind::Rope:
      require(channels(0) == query, kind, "heads x head_dim differ from the input's channels");
      return inputs[0];
    case OperatorKind::Attention:
      require(channels(0) == query && channels(1) == key && channels(2) == key, kind,
              "heads x head_dim differ from the channels of q, k or v");
      return activation(query);
    case OperatorKind::PackedAttention:
      require(channels(0) == query + 2 * key, kind, "the input does not hold q, k and v");
      return activation(query);
    case OperatorKind::SwiGlu:
    case OperatorKind::Add:
      require(inputs[0] == inputs[1], kind, "both inputs must have one shape");
      return inputs[0];
    case OperatorKind::Gelu:
    case OperatorKind::Scale: return inputs[0];
    case OperatorKind::CrossEntropy:
      require(channels(0) == a.integer(Attribute::InFeatures), kind,
              "logits do not have the vocabulary's width");
      return {Dtype::Float64, {{1, false, false}}};
  }
  return {};
}

std::vector<TensorType> statistics_of(OperatorKind kind, const Attributes& a) {
  const TensorType per_group{
      Dtype::Float32,
      {{1, true, false}, {1, false, true}, {a.integer(Attribute::GroupsPerRow, 1), false, false}}};
  switch (kind) {
    case OperatorKind::RmsNorm: return {per_group};
    case OperatorKind::LayerNorm: return {per_group, per_group};
    case OperatorKind::Attention:
    case OperatorKind::PackedAttention:
      return {{Dtype::Float32,
               {{1, true, false}, {a.integer(Attribute::Heads), false, false}, {1, false, true}}}};
    default: return {};
  }
}

bool widens(Kernel kernel, Profile profile) {
  return is_cpu(profile) && kernel != Kernel::Add;
}

std::int64_t attention_block_rows(Profile profile) { return profile == Profile::Cuda ? 128 : 64; }

Extent workspace_elems(Kernel kernel, const Attributes& a, Profile profile) {
  const bool forward = kernel == Kernel::Attention || kernel == Kernel::PackedAttention;
  const bool backward =
      kernel == Kernel::AttentionBackward || kernel == Kernel::PackedAttentionBackward;
  const std::int64_t time = a.integer(Attribute::Time);
  if ((!forward && !backward) || time < 1) return 0;
  if (profile == Profile::Cuda) {
    // Flash attention keeps its tiles on the chip; backward sums the query gradient in float32 and
    // needs one dot product per row (FlashAttention-2, algorithm 2: dQ accumulator and D).
    const Extent rows = Extent(a.integer(Attribute::Batch)) * a.integer(Attribute::Heads) * time;
    return backward ? rows * (a.integer(Attribute::HeadDim) + 1) : 0;
  }
  // A tile holds the scores of its query rows against every key before its end: the last whole
  // tile is the largest, or the rest after it, which has fewer rows but sees all keys.
  const std::int64_t block = std::clamp<std::int64_t>(a.integer(Attribute::BlockRows), 1, time);
  const std::int64_t whole = time / block * block;
  const Extent largest =
      std::max((Extent(block) * whole).value(), (Extent(time - whole) * time).value());
  return largest * (backward ? 2 : 1);
}

double flops_of(Kernel kernel, const Attributes& a) {
  const double rows = a.real(Attribute::Batch) * a.real(Attribute::Time);
  switch (kernel) {
    case Kernel::Linear:
    case Kernel::LinearBackwardInput:
    case Kernel::LinearBackwardWeight:
      return 2 * rows * a.real(Attribute::InFeatures) * a.real(Attribute::OutFeatures);
    case Kernel::Attention:
    case Kernel::PackedAttention: return attention_flops(a);
    // Five products instead of two: the scores again, dV, dP, dQ, dK.
    case Kernel::AttentionBackward:
    case Kernel::PackedAttentionBackward: return 2.5 * attention_flops(a);
    default: return 0;
  }
}

bool is_optimizer(Kernel kernel) { return kernel == Kernel::Adam || kernel == Kernel::Sgd; }

bool is_matrix_product(Kernel kernel) {
  switch (kernel) {
    case Kernel::Linear:
    case Kernel::LinearBackwardInput:
    case Kernel::LinearBackwardWeight:
    case Kernel::Attention:
    case Kernel::AttentionBackward:
    case Kernel::PackedAttention:
    case Kernel::PackedAttentionBackward: return true;
    default: return false;
  }
}

}  // namespace shardplan
