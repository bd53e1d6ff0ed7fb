#include <string>
#include <string_view>
#include <vector>

#include "plans/error.h"
#include "plans/names.h"
#include "plans/operators.h"

namespace shardplan {
namespace {

using Kind = Role::Kind;
constexpr Role in(int i) { return {Kind::Input, i}; }
constexpr Role param(int i) { return {Kind::Parameter, i}; }
constexpr Role stat(int i) { return {Kind::Statistic, i}; }
constexpr Role grad_in(int i) { return {Kind::InputGradient, i}; }
constexpr Role grad_param(int i) { return {Kind::ParameterGradient, i}; }
constexpr Role kOut{Kind::Output, 0};
constexpr Role kGradOut{Kind::OutputGradient, 0};
constexpr Role kWorkspace{Kind::Workspace, 0};

/// An activation whose backward needs its input or its output, which is `saved`.
OperatorSpec elementwise(OperatorKind kind, std::string_view name, Kernel forward, Kernel backward,
                         Role saved) {
  return {kind, name, {{forward, {in(0)}, {kOut}}}, {{backward, {kGradOut, saved}, {grad_in(0)}}}};
}

/// An operator of one input whose backward needs nothing but the gradient.
OperatorSpec rearrangement(OperatorKind kind, std::string_view name, Kernel forward,
                           Kernel backward) {
  return {kind, name, {{forward, {in(0)}, {kOut}}}, {{backward, {kGradOut}, {grad_in(0)}}}};
}

/// Operators that choose experts for tokens and run them.
const std::vector<OperatorSpec>& mixture_specs() {
  static const std::vector<OperatorSpec> kSpecs{
      {OperatorKind::TopK,
       "top_k",
       {{Kernel::TopK, {in(0)}, {kOut}}},
       {{Kernel::TopKBackward, {kGradOut, in(0), kOut}, {grad_in(0)}}}},
      {OperatorKind::Dispatch,
       "dispatch",
       {{Kernel::Dispatch, {in(0), in(1)}, {kOut}}},
       {{Kernel::DispatchBackward, {kGradOut, in(1)}, {grad_in(0)}}}},
      {OperatorKind::ExpertLinear,
       "expert_linear",
       {{Kernel::ExpertLinear, {in(0), in(1), param(0)}, {kOut}}},
       {{Kernel::ExpertLinearBackwardWeight, {kGradOut, in(0), in(1)}, {grad_param(0)}},
        {Kernel::ExpertLinearBackwardInput, {kGradOut, in(1), param(0)}, {grad_in(0)}}}},
      {OperatorKind::Combine,
       "combine",
       {{Kernel::Combine, {in(0), in(1)}, {kOut}}},
       {{Kernel::CombineBackward, {kGradOut, in(0), in(1)}, {grad_in(0), grad_in(1)}}}},
  };
  return kSpecs;
}

/// Operators that make tokens of images and sound, and move tokens.
const std::vector<OperatorSpec>& token_specs() {
  static const std::vector<OperatorSpec> kSpecs{
      {OperatorKind::Convolution,
       "convolution",
       {{Kernel::Convolution, {in(0), param(0), param(1)}, {kOut}}},
       {{Kernel::ConvolutionBackwardWeight, {kGradOut, in(0)}, {grad_param(0)}},
        {Kernel::ConvolutionBackwardBias, {kGradOut}, {grad_param(1)}},
        {Kernel::ConvolutionBackwardInput, {kGradOut, param(0)}, {grad_in(0)}}}},
      {OperatorKind::PrependToken,
       "prepend_token",
       {{Kernel::PrependToken, {in(0), param(0)}, {kOut}}},
       {{Kernel::PrependTokenBackward, {kGradOut}, {grad_in(0), grad_param(0)}}}},
      rearrangement(OperatorKind::SliceTokens, "slice_tokens", Kernel::SliceTokens,
                    Kernel::SliceTokensBackward),
      rearrangement(OperatorKind::AveragePool, "average_pool", Kernel::AveragePool,
                    Kernel::AveragePoolBackward),
      {OperatorKind::MergeTokens,
       "merge_tokens",
       {{Kernel::MergeTokens, {in(0), in(1), in(2)}, {kOut}}},
       {{Kernel::MergeTokensBackward, {kGradOut, in(2)}, {grad_in(0), grad_in(1)}}}},
  };
  return kSpecs;
}

/// Activations, gates, and what rearranges the columns of rows.
const std::vector<OperatorSpec>& row_specs() {
  using enum OperatorKind;
  static const std::vector<OperatorSpec> kSpecs{
      elementwise(Relu, "relu", Kernel::Relu, Kernel::ReluBackward, kOut),
      elementwise(Silu, "silu", Kernel::Silu, Kernel::SiluBackward, in(0)),
      elementwise(QuickGelu, "quick_gelu", Kernel::QuickGelu, Kernel::QuickGeluBackward, in(0)),
      elementwise(Tanh, "tanh", Kernel::Tanh, Kernel::TanhBackward, kOut),
      elementwise(Sigmoid, "sigmoid", Kernel::Sigmoid, Kernel::SigmoidBackward, kOut),
      elementwise(SoftCap, "soft_cap", Kernel::SoftCap, Kernel::SoftCapBackward, in(0)),
      {GateRows,
       "gate_rows",
       {{Kernel::GateRows, {in(0), in(1)}, {kOut}}},
       {{Kernel::GateRowsBackward, {kGradOut, in(0), in(1)}, {grad_in(0), grad_in(1)}}}},
      {GeGlu,
       "geglu",
       {{Kernel::GeGlu, {in(0), in(1)}, {kOut}}},
       {{Kernel::GeGluBackward, {kGradOut, in(0), in(1)}, {grad_in(0), grad_in(1)}}}},
      elementwise(PackedSwiGlu, "packed_swiglu", Kernel::PackedSwiGlu, Kernel::PackedSwiGluBackward,
                  in(0)),
      rearrangement(Slice, "slice", Kernel::Slice, Kernel::SliceBackward),
      {Concat,
       "concat",
       {{Kernel::Concat, {in(0), in(1)}, {kOut}}},
       {{Kernel::ConcatBackward, {kGradOut}, {grad_in(0), grad_in(1)}}}},
      {RelativePositionBias,
       "relative_position_bias",
       {{Kernel::RelativePositionBias, {param(0)}, {kOut}}},
       {{Kernel::RelativePositionBiasBackward, {kGradOut}, {grad_param(0)}}}},
      {BiasedAttention,
       "biased_attention",
       {{Kernel::BiasedAttention, {in(0), in(1), in(2), in(3)}, {kOut, stat(0), kWorkspace}}},
       {{Kernel::BiasedAttentionBackward,
         {kGradOut, in(0), in(1), in(2), in(3), kOut, stat(0)},
         {grad_in(0), grad_in(1), grad_in(2), grad_in(3), kWorkspace}}}},
  };
  return kSpecs;
}

/// What Llama and GPT-2 are made of. To add an operator: its names in operators.h and .cpp, a row
/// here, its shape (operator_shapes.cpp), its work (operator_work.cpp), its operands
/// (kernel_operands.cpp), and to run it a kernel in kernels/ and its launch in
/// runtime/cpu_kernels.cpp.
const std::vector<OperatorSpec>& core_specs() {
  static const std::vector<OperatorSpec> kSpecs{
      {OperatorKind::Input, "input", {}, {}},
      {OperatorKind::Embedding,
       "embedding",
       {{Kernel::Embedding, {in(0), param(0)}, {kOut}}},
       {{Kernel::EmbeddingBackward, {kGradOut, in(0)}, {grad_param(0)}}}},
      {.kind = OperatorKind::PositionEmbedding,
       .name = "position_embedding",
       .forward = {{Kernel::PositionEmbedding, {in(0), param(0)}, {kOut}}},
       .backward = {{Kernel::PositionEmbeddingBackward, {kGradOut}, {grad_param(0)}}},
       .in_place_input = 0,
       .gradient_passes_through = true},
      {OperatorKind::RmsNorm,
       "rms_norm",
       {{Kernel::RmsNorm, {in(0), param(0)}, {kOut, stat(0)}}},
       {{Kernel::RmsNormBackward,
         {kGradOut, in(0), param(0), stat(0)},
         {grad_in(0), grad_param(0)}}}},
      {OperatorKind::LayerNorm,
       "layer_norm",
       {{Kernel::LayerNorm, {in(0), param(0), param(1)}, {kOut, stat(0), stat(1)}}},
       {{Kernel::LayerNormBackward,
         {kGradOut, in(0), param(0), stat(0), stat(1)},
         {grad_in(0), grad_param(0), grad_param(1)}}}},
      {OperatorKind::Linear,
       "linear",
       {{Kernel::Linear, {in(0), param(0), param(1)}, {kOut}}},
       {{Kernel::LinearBackwardWeight, {kGradOut, in(0)}, {grad_param(0)}},
        {Kernel::LinearBackwardBias, {kGradOut}, {grad_param(1)}},
        {Kernel::LinearBackwardInput, {kGradOut, param(0)}, {grad_in(0)}}}},
      {.kind = OperatorKind::Rope,
       .name = "rope",
       .forward = {{Kernel::Rope, {in(0)}, {kOut}}},
       .backward = {{Kernel::RopeBackward, {kGradOut}, {grad_in(0)}}},
       .in_place_input = 0},
      {OperatorKind::Attention,
       "attention",
       {{Kernel::Attention, {in(0), in(1), in(2)}, {kOut, stat(0), kWorkspace}}},
       {{Kernel::AttentionBackward,
         {kGradOut, in(0), in(1), in(2), kOut, stat(0)},
         {grad_in(0), grad_in(1), grad_in(2), kWorkspace}}}},
      {OperatorKind::PackedAttention,
       "packed_attention",
       {{Kernel::PackedAttention, {in(0)}, {kOut, stat(0), kWorkspace}}},
       {{Kernel::PackedAttentionBackward,
         {kGradOut, in(0), kOut, stat(0)},
         {grad_in(0), kWorkspace}}}},
      {OperatorKind::SwiGlu,
       "swiglu",
       {{Kernel::SwiGlu, {in(0), in(1)}, {kOut}}},
       {{Kernel::SwiGluBackward, {kGradOut, in(0), in(1)}, {grad_in(0), grad_in(1)}}}},
      {OperatorKind::Gelu,
       "gelu",
       {{Kernel::Gelu, {in(0)}, {kOut}}},
       {{Kernel::GeluBackward, {kGradOut, in(0)}, {grad_in(0)}}}},
      {.kind = OperatorKind::Add,
       .name = "add",
       .forward = {{Kernel::Add, {in(0), in(1)}, {kOut}}},
       .backward = {},
       .in_place_input = 1,
       .gradient_passes_through = true},
      {.kind = OperatorKind::Scale,
       .name = "scale",
       .forward = {{Kernel::Scale, {in(0)}, {kOut}}},
       .backward = {{Kernel::Scale, {kGradOut}, {grad_in(0)}}},
       .in_place_input = 0},
      {.kind = OperatorKind::CrossEntropy,
       .name = "cross_entropy",
       .forward = {{Kernel::CrossEntropy, {in(0), in(1)}, {kOut, grad_in(0)}}},
       .backward = {},
       .gradient_in_forward = true},
  };
  return kSpecs;
}

/// The operator catalogue, in the order of OperatorKind.
const std::vector<OperatorSpec>& catalogue() {
  static const std::vector<OperatorSpec> kSpecs = [] {
    std::vector<OperatorSpec> all;
    for (const auto* part : {&core_specs(), &row_specs(), &mixture_specs(), &token_specs()})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  }();
  return kSpecs;
}

}  // namespace

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

}  // namespace shardplan
