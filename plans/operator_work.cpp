#include <algorithm>

#include "plans/operators.h"

namespace shardplan {
namespace {

std::int64_t keys_of(const Attributes& a) {
  return a.integer(Attribute::SourceTime, a.integer(Attribute::Time));
}

/// Pairs of a query and a key that it sees, per sequence and head.
double attended_pairs(const Attributes& a) {
  const double time = a.real(Attribute::Time);
  if (a.integer(Attribute::Bidirectional)) return time * static_cast<double>(keys_of(a));
  const double window = a.real(Attribute::Window);
  if (window > 0 && window < time) return window * (window + 1) / 2 + (time - window) * window;
  return time * (time + 1) / 2;
}

/// Multiply-adds of Q K^T and P V together: 2 D each per pair of tokens and head, counted as two.
double attention_flops(const Attributes& a) {
  const double head_dim = a.real(Attribute::HeadDim);
  return a.real(Attribute::Batch) * a.real(Attribute::Heads) * attended_pairs(a) * 2 *
         (head_dim + a.real(Attribute::ValueHeadDim, head_dim));
}

/// Elements of a convolution's weight per pair of channels.
double kernel_area(const Attributes& a) {
  double area = 1;
  for (const Attribute side : {Attribute::Height, Attribute::Width})
    if (a.integer(side, 1) > 1) area *= a.real(Attribute::KernelSize);
  return area;
}

bool is_attention_forward(Kernel kernel) {
  return kernel == Kernel::Attention || kernel == Kernel::PackedAttention ||
         kernel == Kernel::BiasedAttention;
}

}  // namespace

bool is_attention_backward(Kernel kernel) {
  return kernel == Kernel::AttentionBackward || kernel == Kernel::PackedAttentionBackward ||
         kernel == Kernel::BiasedAttentionBackward;
}

Extent rows_of(const Attributes& a) {
  if (a.has(Attribute::Rows)) return a.integer(Attribute::Rows);
  return Extent(a.integer(Attribute::Batch)) * a.integer(Attribute::Time);
}

bool widens(Kernel kernel, Profile profile) { return is_cpu(profile) && kernel != Kernel::Add; }

std::int64_t attention_block_rows(Profile profile) { return profile == Profile::Cuda ? 128 : 64; }

Extent workspace_elems(Kernel kernel, const Attributes& a, Profile profile) {
  const bool forward = is_attention_forward(kernel);
  const bool backward = is_attention_backward(kernel);
  const std::int64_t time = a.integer(Attribute::Time);
  if ((!forward && !backward) || time < 1) return 0;
  if (profile == Profile::Cuda) {
    // Flash attention keeps its tiles on the chip; backward sums the query gradient in float32 and
    // needs one dot product per row (FlashAttention-2, algorithm 2: dQ accumulator and D).
    const Extent rows = Extent(a.integer(Attribute::Batch)) * a.integer(Attribute::Heads) * time;
    return backward ? rows * (a.integer(Attribute::HeadDim) + 1) : 0;
  }
  const std::int64_t block = std::clamp<std::int64_t>(a.integer(Attribute::BlockRows), 1, time);
  if (a.integer(Attribute::Bidirectional)) return Extent(block) * keys_of(a) * (backward ? 2 : 1);
  // A tile holds the scores of its query rows against every key before its end: the last whole
  // tile is the largest, or the rest after it, which has fewer rows but sees all keys.
  const std::int64_t whole = time / block * block;
  const Extent largest =
      std::max((Extent(block) * whole).value(), (Extent(time - whole) * time).value());
  return largest * (backward ? 2 : 1);
}

double flops_of(Kernel kernel, const Attributes& a) {
  if (is_attention_forward(kernel)) return attention_flops(a);
  // Five products instead of two: the scores again, dV, dP, dQ, dK.
  if (is_attention_backward(kernel)) return 2.5 * attention_flops(a);
  if (!is_matrix_product(kernel)) return 0;
  const double product = 2 * static_cast<double>(rows_of(a).value()) *
                         a.real(Attribute::InFeatures) * a.real(Attribute::OutFeatures);
  switch (kernel) {
    case Kernel::Convolution:
    case Kernel::ConvolutionBackwardInput:
    case Kernel::ConvolutionBackwardWeight: return product * kernel_area(a);
    default: return product;
  }
}

bool is_optimizer(Kernel kernel) { return kernel == Kernel::Adam || kernel == Kernel::Sgd; }

bool is_attention(Kernel kernel) {
  return is_attention_forward(kernel) || is_attention_backward(kernel);
}

bool is_matrix_product(Kernel kernel) {
  switch (kernel) {
    case Kernel::Linear:
    case Kernel::LinearBackwardInput:
    case Kernel::LinearBackwardWeight:
    case Kernel::ExpertLinear:
    case Kernel::ExpertLinearBackwardInput:
    case Kernel::ExpertLinearBackwardWeight:
    case Kernel::Convolution:
    case Kernel::ConvolutionBackwardInput:
    case Kernel::ConvolutionBackwardWeight: return true;
    default: return is_attention(kernel);
  }
}

}  // namespace shardplan
