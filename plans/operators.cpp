#include "plans/operators.h"

#include <algorithm>
#include <array>

#include "plans/names.h"

namespace shardplan {
namespace {

constexpr std::array kAttributeNames{
    EnumName{Attribute::Batch, "batch"},
    EnumName{Attribute::Time, "time"},
    EnumName{Attribute::SourceTime, "source_time"},
    EnumName{Attribute::Rows, "rows"},
    EnumName{Attribute::FirstRow, "first_row"},
    EnumName{Attribute::InFeatures, "in_features"},
    EnumName{Attribute::OutFeatures, "out_features"},
    EnumName{Attribute::Heads, "heads"},
    EnumName{Attribute::KvHeads, "kv_heads"},
    EnumName{Attribute::HeadDim, "head_dim"},
    EnumName{Attribute::ValueHeadDim, "value_head_dim"},
    EnumName{Attribute::Scale, "scale"},
    EnumName{Attribute::Window, "window"},
    EnumName{Attribute::Bidirectional, "bidirectional"},
    EnumName{Attribute::Alibi, "alibi"},
    EnumName{Attribute::SoftCap, "soft_cap"},
    EnumName{Attribute::Epsilon, "epsilon"},
    EnumName{Attribute::UnitOffset, "unit_offset"},
    EnumName{Attribute::OwnWeights, "own_weights"},
    EnumName{Attribute::NormParameters, "norm_parameters"},
    EnumName{Attribute::Offset, "offset"},
    EnumName{Attribute::RotaryDim, "rotary_dim"},
    EnumName{Attribute::RotaryOffset, "rotary_offset"},
    EnumName{Attribute::RopeInterleaved, "rope_interleaved"},
    EnumName{Attribute::RopeYarn, "rope_yarn"},
    EnumName{Attribute::RopeLong, "rope_long"},
    EnumName{Attribute::RopeDynamic, "rope_dynamic"},
    EnumName{Attribute::RopeTheta, "rope_theta"},
    EnumName{Attribute::RopeFactor, "rope_factor"},
    EnumName{Attribute::RopeLowFrequency, "rope_low_frequency"},
    EnumName{Attribute::RopeHighFrequency, "rope_high_frequency"},
    EnumName{Attribute::RopeOriginalContext, "rope_original_context"},
    EnumName{Attribute::WeightTransposed, "weight_transposed"},
    EnumName{Attribute::TanhApproximation, "tanh_approximation"},
    EnumName{Attribute::SecondFeatures, "second_features"},
    EnumName{Attribute::GroupsPerRow, "groups_per_row"},
    EnumName{Attribute::Experts, "experts"},
    EnumName{Attribute::TopK, "top_k"},
    EnumName{Attribute::Tokens, "tokens"},
    EnumName{Attribute::Height, "height"},
    EnumName{Attribute::Width, "width"},
    EnumName{Attribute::KernelSize, "kernel_size"},
    EnumName{Attribute::Stride, "stride"},
    EnumName{Attribute::Padding, "padding"},
    EnumName{Attribute::BlockRows, "block_rows"},
    EnumName{Attribute::LossScale, "loss_scale"},
    EnumName{Attribute::Beta1, "beta1"},
    EnumName{Attribute::Beta2, "beta2"},
    EnumName{Attribute::WeightDecay, "weight_decay"},
    EnumName{Attribute::DecoupledDecay, "decoupled_decay"},
    EnumName{Attribute::Momentum, "momentum"},
    EnumName{Attribute::MaxNorm, "max_norm"},
    EnumName{Attribute::OperandBits, "operand_bits"},
    EnumName{Attribute::Fused, "fused"},
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
    EnumName{Kernel::Relu, "relu"},
    EnumName{Kernel::ReluBackward, "relu_backward"},
    EnumName{Kernel::Silu, "silu"},
    EnumName{Kernel::SiluBackward, "silu_backward"},
    EnumName{Kernel::QuickGelu, "quick_gelu"},
    EnumName{Kernel::QuickGeluBackward, "quick_gelu_backward"},
    EnumName{Kernel::Tanh, "tanh"},
    EnumName{Kernel::TanhBackward, "tanh_backward"},
    EnumName{Kernel::Sigmoid, "sigmoid"},
    EnumName{Kernel::SigmoidBackward, "sigmoid_backward"},
    EnumName{Kernel::SoftCap, "soft_cap"},
    EnumName{Kernel::SoftCapBackward, "soft_cap_backward"},
    EnumName{Kernel::GateRows, "gate_rows"},
    EnumName{Kernel::GateRowsBackward, "gate_rows_backward"},
    EnumName{Kernel::GeGlu, "geglu"},
    EnumName{Kernel::GeGluBackward, "geglu_backward"},
    EnumName{Kernel::PackedSwiGlu, "packed_swiglu"},
    EnumName{Kernel::PackedSwiGluBackward, "packed_swiglu_backward"},
    EnumName{Kernel::Slice, "slice"},
    EnumName{Kernel::SliceBackward, "slice_backward"},
    EnumName{Kernel::Concat, "concat"},
    EnumName{Kernel::ConcatBackward, "concat_backward"},
    EnumName{Kernel::RelativePositionBias, "relative_position_bias"},
    EnumName{Kernel::RelativePositionBiasBackward, "relative_position_bias_backward"},
    EnumName{Kernel::BiasedAttention, "biased_attention"},
    EnumName{Kernel::BiasedAttentionBackward, "biased_attention_backward"},
    EnumName{Kernel::TopK, "top_k"},
    EnumName{Kernel::TopKBackward, "top_k_backward"},
    EnumName{Kernel::Dispatch, "dispatch"},
    EnumName{Kernel::DispatchBackward, "dispatch_backward"},
    EnumName{Kernel::ExpertLinear, "expert_linear"},
    EnumName{Kernel::ExpertLinearBackwardInput, "expert_linear_backward_input"},
    EnumName{Kernel::ExpertLinearBackwardWeight, "expert_linear_backward_weight"},
    EnumName{Kernel::Combine, "combine"},
    EnumName{Kernel::CombineBackward, "combine_backward"},
    EnumName{Kernel::Convolution, "convolution"},
    EnumName{Kernel::ConvolutionBackwardInput, "convolution_backward_input"},
    EnumName{Kernel::ConvolutionBackwardWeight, "convolution_backward_weight"},
    EnumName{Kernel::ConvolutionBackwardBias, "convolution_backward_bias"},
    EnumName{Kernel::PrependToken, "prepend_token"},
    EnumName{Kernel::PrependTokenBackward, "prepend_token_backward"},
    EnumName{Kernel::SliceTokens, "slice_tokens"},
    EnumName{Kernel::SliceTokensBackward, "slice_tokens_backward"},
    EnumName{Kernel::AveragePool, "average_pool"},
    EnumName{Kernel::AveragePoolBackward, "average_pool_backward"},
    EnumName{Kernel::MergeTokens, "merge_tokens"},
    EnumName{Kernel::MergeTokensBackward, "merge_tokens_backward"},
    EnumName{Kernel::SumSquares, "sum_squares"},
    EnumName{Kernel::GradientNorm, "gradient_norm"},
    EnumName{Kernel::Adam, "adam"},
    EnumName{Kernel::Sgd, "sgd"},
    EnumName{Kernel::Elementwise, "elementwise"},
};

constexpr std::array kProfileNames{
    EnumName{Profile::CpuOneDnn, "cpu-onednn"},
    EnumName{Profile::CpuReference, "cpu-reference"},
    EnumName{Profile::Cuda, "cuda"},
    EnumName{Profile::TorchEager, "torch-eager"},
    EnumName{Profile::TorchCompile, "torch-compile"},
};

}  // namespace

std::string_view to_string(Attribute attribute) { return name_of(kAttributeNames, attribute); }
Attribute attribute_from(std::string_view name) {
  return value_of(kAttributeNames, name, "attribute");
}
std::string_view to_string(Kernel kernel) { return name_of(kKernelNames, kernel); }
Kernel kernel_from(std::string_view name) { return value_of(kKernelNames, name, "kernel"); }
std::string_view to_string(Profile profile) { return name_of(kProfileNames, profile); }
Profile profile_from(std::string_view name) { return value_of(kProfileNames, name, "profile"); }

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

}  // namespace shardplan
