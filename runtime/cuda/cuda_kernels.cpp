#include "runtime/cuda/cuda_kernels.h"

#include <fmt/format.h>

#include "kernels/cuda/kernels.h"
#include "plans/error.h"
#include "runtime/launch_arguments.h"

namespace shardplan::cuda {

ConstFloats const_floats(const Operand& operand) {
  if (operand.dtype == Dtype::BFloat16)
    return {reinterpret_cast<const BFloat16*>(operand.data), operand.elems};
  shardplan::check(operand.dtype == Dtype::Float32, "kernels work on float32 and bfloat16");
  return {reinterpret_cast<const float*>(operand.data), operand.elems};
}

Floats floats(const Operand& operand) {
  if (operand.dtype == Dtype::BFloat16)
    return {reinterpret_cast<BFloat16*>(operand.data), operand.elems};
  shardplan::check(operand.dtype == Dtype::Float32, "kernels work on float32 and bfloat16");
  return {reinterpret_cast<float*>(operand.data), operand.elems};
}

namespace {

struct Call : LaunchArguments {
  Call(const KernelContext& with, const Launch& launched)
      : LaunchArguments(launched), context(with), stream(with.stream) {}

  ConstFloats in(std::size_t i) const { return const_floats(read(i)); }
  Floats out(std::size_t i) const { return floats(write(i)); }
  std::span<const std::int32_t> tokens(std::size_t i) const {
    return elements<const std::int32_t>(read(i));
  }
  std::span<double> sum(std::size_t i) const { return elements<double>(write(i)); }

  const KernelContext& context;
  const cudaStream_t stream;
};

void run_embedding(const Call& call) {
  embedding(call.tokens(0), call.in(1), call.out(0), call.channels(), call.stream);
}

void run_embedding_backward(const Call& call) {
  embedding_backward(call.in(0), call.tokens(1), call.out(0), call.channels(), call.store(0, 2),
                     call.stream);
}

void run_position_embedding(const Call& call) {
  position_embedding(call.in(0), call.in(1), call.out(0), call.time() * call.channels(),
                     call.stream);
}

void run_position_embedding_backward(const Call& call) {
  position_embedding_backward(call.in(0), call.out(0), call.time() * call.channels(),
                              call.store(0, 1), call.stream);
}

void run_linear(const Call& call) {
  linear(call.context.products, call.in(0), call.in(1), call.reads(2) ? call.in(2) : ConstFloats(),
         call.out(0), linear_shape(call), call.stream);
}

void run_linear_backward_input(const Call& call) {
  linear_backward_input(call.context.products, call.in(0), call.in(1), call.out(0),
                        linear_shape(call), call.store(0, 2), call.stream);
}

void run_linear_backward_weight(const Call& call) {
  linear_backward_weight(call.context.products, call.in(0), call.in(1), call.out(0),
                         linear_shape(call), call.store(0, 2), call.stream);
}

void run_linear_backward_bias(const Call& call) {
  sum_rows(call.in(0), call.out(0), call.store(0, 1), call.stream);
}

template <RopeDirection direction>
void run_rope(const Call& call) {
  rope(call.in(0), call.out(0), rope_shape(call), direction, call.stream);
}

void run_attention(const Call& call) {
  attention(call.in(0), call.in(1), call.in(2), call.out(0), call.out(1), attention_shape(call),
            call.stream);
}

void run_attention_backward(const Call& call) {
  attention_backward(call.in(0), call.in(1), call.in(2), call.in(3), call.in(4), call.in(5),
                     call.out(0), call.out(1), call.out(2), elements<float>(call.write(3)),
                     attention_shape(call), call.stream);
}

void run_packed_attention(const Call& call) {
  const auto [shape, keys, values] = packed_attention_shape(call);
  const ConstFloats qkv = call.in(0);
  attention(qkv, qkv.from(keys), qkv.from(values), call.out(0), call.out(1), shape, call.stream);
}

void run_packed_attention_backward(const Call& call) {
  const auto [shape, keys, values] = packed_attention_shape(call);
  const ConstFloats qkv = call.in(1);
  const Floats grad = call.out(0);
  attention_backward(call.in(0), qkv, qkv.from(keys), qkv.from(values), call.in(2), call.in(3),
                     grad, grad.from(keys), grad.from(values), elements<float>(call.write(1)),
                     shape, call.stream);
}

void run_swiglu(const Call& call) { swiglu(call.in(0), call.in(1), call.out(0), call.stream); }

void run_swiglu_backward(const Call& call) {
  swiglu_backward(call.in(0), call.in(1), call.in(2), call.out(0), call.out(1), call.stream);
}

void run_gelu(const Call& call) { gelu(call.in(0), call.out(0), gelu_kind(call), call.stream); }

void run_gelu_backward(const Call& call) {
  gelu_backward(call.in(0), call.in(1), call.out(0), gelu_kind(call), call.stream);
}

void run_add(const Call& call) { add(call.in(0), call.in(1), call.out(0), call.stream); }

void run_scale(const Call& call) {
  scale(call.in(0), call.single(Attribute::Scale), call.out(0), call.stream);
}

void run_cross_entropy(const Call& call) {
  cross_entropy(call.in(0), call.tokens(1), call.sum(0), call.out(1), call.context.partials,
                logits_shape(call), loss_scale(call), call.store(0, 2), call.stream);
}

void run_sum_squares(const Call& call) {
  Store store = Store::Overwrite;
  for (const Operand& part : call.launch.reads) {
    sum_squares(const_floats(part), call.sum(0), call.context.partials, store, call.stream);
    store = Store::Accumulate;
  }
}

void run_gradient_norm(const Call& call) {
  gradient_norm(elements<const double>(call.read(0)), call.single(Attribute::MaxNorm), call.out(0),
                call.out(1), call.stream);
}

void run_adam(const Call& call) {
  adam(call.in(0), call.in(1), call.out(0), call.out(1), call.out(2), adam_step(call),
       call.context.now, call.stream);
}

void run_sgd(const Call& call) {
  sgd(call.in(0), call.in(1), call.out(0), call.writes(1) ? call.out(1) : Floats(), sgd_step(call),
      call.context.now, call.stream);
}

void run_rms_norm(const Call& call) {
  rms_norm(call.in(0), call.in(1), call.out(0), call.out(1), call.channels(),
           call.single(Attribute::Epsilon), call.stream);
}

void run_rms_norm_backward(const Call& call) {
  rms_norm_backward(call.in(0), call.in(1), call.in(2), call.in(3), call.out(0), call.out(1),
                    call.store(0, 4), call.store(1, 4), call.stream);
}

void run_layer_norm(const Call& call) {
  layer_norm(call.in(0), call.in(1), call.in(2), call.out(0), call.out(1), call.out(2),
             call.channels(), call.single(Attribute::Epsilon), call.stream);
}

void run_layer_norm_backward(const Call& call) {
  layer_norm_backward(call.in(0), call.in(1), call.in(2), call.in(3), call.in(4), call.out(0),
                      call.out(1), call.out(2), call.store(0, 5), call.store(1, 5),
                      call.store(2, 5), call.stream);
}

using Run = void (*)(const Call& call);

/// What launches a kernel; null: there is none yet.
Run run_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::Embedding: return run_embedding;
    case Kernel::EmbeddingBackward: return run_embedding_backward;
    case Kernel::PositionEmbedding: return run_position_embedding;
    case Kernel::PositionEmbeddingBackward: return run_position_embedding_backward;
    case Kernel::RmsNorm: return run_rms_norm;
    case Kernel::RmsNormBackward: return run_rms_norm_backward;
    case Kernel::LayerNorm: return run_layer_norm;
    case Kernel::LayerNormBackward: return run_layer_norm_backward;
    case Kernel::Linear: return run_linear;
    case Kernel::LinearBackwardInput: return run_linear_backward_input;
    case Kernel::LinearBackwardWeight: return run_linear_backward_weight;
    case Kernel::LinearBackwardBias: return run_linear_backward_bias;
    case Kernel::Rope: return run_rope<RopeDirection::Forward>;
    case Kernel::RopeBackward: return run_rope<RopeDirection::Backward>;
    case Kernel::Attention: return run_attention;
    case Kernel::AttentionBackward: return run_attention_backward;
    case Kernel::PackedAttention: return run_packed_attention;
    case Kernel::PackedAttentionBackward: return run_packed_attention_backward;
    case Kernel::SwiGlu: return run_swiglu;
    case Kernel::SwiGluBackward: return run_swiglu_backward;
    case Kernel::Gelu: return run_gelu;
    case Kernel::GeluBackward: return run_gelu_backward;
    case Kernel::Add: return run_add;
    case Kernel::Scale: return run_scale;
    case Kernel::CrossEntropy: return run_cross_entropy;
    case Kernel::SumSquares: return run_sum_squares;
    case Kernel::GradientNorm: return run_gradient_norm;
    case Kernel::Adam: return run_adam;
    case Kernel::Sgd: return run_sgd;
    default: return nullptr;
  }
}

}  // namespace

std::string missing_kernel(Kernel kernel, const Attributes& attributes) {
  if (run_of(kernel) == nullptr) return std::string(to_string(kernel));
  if (is_attention(kernel) && attributes.integer(Attribute::HeadDim) > kMostHeadDim)
    return fmt::format("{} with head_dim above {}", to_string(kernel), kMostHeadDim);
  return unsupported_attribute(kernel, attributes);
}

void launch(const KernelContext& context, const Launch& launch) {
  const Run run = run_of(launch.kernel);
  if (run == nullptr)
    throw InputError(fmt::format("there is no CUDA kernel {} yet", to_string(launch.kernel)));
  run(Call(context, launch));
}

}  // namespace shardplan::cuda
