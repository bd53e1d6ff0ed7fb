#include "runtime/cpu_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/kernels.h"
#include "plans/error.h"

namespace shardplan::cpu {
namespace {

// torch.nn.utils.clip_grad_norm_ adds this to the norm it divides by.
constexpr float kClipEpsilon = 1e-6f;

/// A launch seen by its kernel: typed operands and attributes by name.
struct Call {
  const Launch& launch;
  Gemm gemm;

  const float* in(std::size_t i) const { return reinterpret_cast<const float*>(read(i).data); }
  const std::int32_t* tokens(std::size_t i) const {
    return reinterpret_cast<const std::int32_t*>(read(i).data);
  }
  const double* in_double(std::size_t i) const {
    return reinterpret_cast<const double*>(read(i).data);
  }
  float* out(std::size_t i) const { return reinterpret_cast<float*>(write(i).data); }
  double* out_double(std::size_t i) const { return reinterpret_cast<double*>(write(i).data); }

  const Operand& read(std::size_t i) const {
    expect(i < launch.reads.size());
    return launch.reads[i];
  }
  const Operand& write(std::size_t i) const {
    expect(i < launch.writes.size());
    return launch.writes[i];
  }
  bool reads(std::size_t i) const { return i < launch.reads.size(); }
  bool writes(std::size_t i) const { return i < launch.writes.size(); }

  /// Whether the kernel, which has `own` reads of its own, adds to the i-th written operand.
  Store store(std::size_t i, std::size_t own) const {
    const auto more = launch.reads.subspan(std::min(own, launch.reads.size()));
    const bool adds =
        std::ranges::any_of(more, [&](const Operand& read) { return read.data == write(i).data; });
    return adds ? Store::Accumulate : Store::Overwrite;
  }

  std::int64_t integer(Attribute attribute) const { return launch.attributes.integer(attribute); }
  double real(Attribute attribute) const { return launch.attributes.real(attribute); }
  float single(Attribute attribute) const { return static_cast<float>(real(attribute)); }
  std::int64_t batch() const { return integer(Attribute::Batch); }
  std::int64_t time() const { return integer(Attribute::Time); }
  std::int64_t rows() const { return rows_of(launch.attributes).value(); }
  std::int64_t channels() const { return integer(Attribute::OutFeatures); }
  std::int64_t norm_rows() const {
    return rows() * launch.attributes.integer(Attribute::GroupsPerRow, 1);
  }

  void expect(bool has_operand) const {
    if (!has_operand)
      throw InputError(fmt::format("kernel {} has {} reads and {} writes, expected more",
                                   to_string(launch.kernel), launch.reads.size(),
                                   launch.writes.size()));
  }
};

void run_embedding(const Call& call) {
  embedding(call.tokens(0), call.in(1), call.out(0), call.rows(),
            call.integer(Attribute::InFeatures), call.channels());
}

void run_embedding_backward(const Call& call) {
  embedding_backward(call.in(0), call.tokens(1), call.out(0), call.rows(),
                     call.integer(Attribute::InFeatures), call.channels(), call.store(0, 2));
}

void run_position_embedding(const Call& call) {
  position_embedding(call.in(0), call.in(1), call.out(0), call.batch(), call.time(),
                     call.channels());
}

void run_position_embedding_backward(const Call& call) {
  position_embedding_backward(call.in(0), call.out(0), call.batch(), call.time(),
                              call.integer(Attribute::InFeatures), call.channels(),
                              call.store(0, 1));
}

LinearShape linear_shape(const Call& call) {
  return {call.rows(), call.integer(Attribute::InFeatures), call.channels(),
          call.integer(Attribute::WeightTransposed) ? WeightLayout::InOut : WeightLayout::OutIn};
}

void run_linear(const Call& call) {
  linear(call.gemm, call.in(0), call.in(1), call.reads(2) ? call.in(2) : nullptr, call.out(0),
         linear_shape(call));
}

void run_linear_backward_input(const Call& call) {
  linear_backward_input(call.gemm, call.in(0), call.in(1), call.out(0), linear_shape(call),
                        call.store(0, 2));
}

void run_linear_backward_weight(const Call& call) {
  linear_backward_weight(call.gemm, call.in(0), call.in(1), call.out(0), linear_shape(call),
                         call.store(0, 2));
}

void run_linear_backward_bias(const Call& call) {
  linear_backward_bias(call.in(0), call.out(0), linear_shape(call), call.store(0, 1));
}

template <RopeDirection direction>
void run_rope(const Call& call) {
  const RopeShape shape{.batch = call.batch(),
                        .time = call.time(),
                        .heads = call.integer(Attribute::Heads),
                        .head_dim = call.integer(Attribute::HeadDim),
                        .theta = call.real(Attribute::RopeTheta),
                        .factor = call.launch.attributes.real(Attribute::RopeFactor, 1),
                        .low_frequency = call.real(Attribute::RopeLowFrequency),
                        .high_frequency = call.real(Attribute::RopeHighFrequency),
                        .original_context = call.real(Attribute::RopeOriginalContext)};
  rope(call.in(0), call.out(0), shape, direction);
}

AttentionShape attention_shape(const Call& call) {
  const std::int64_t heads = call.integer(Attribute::Heads);
  const std::int64_t kv_heads = call.integer(Attribute::KvHeads);
  const std::int64_t head_dim = call.integer(Attribute::HeadDim);
  return {.batch = call.batch(),
          .time = call.time(),
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = call.single(Attribute::Scale),
          .window = call.integer(Attribute::Window),
          .query_stride = heads * head_dim,
          .key_value_stride = kv_heads * head_dim,
          .block_rows = call.integer(Attribute::BlockRows)};
}

void run_attention(const Call& call) {
  attention(call.gemm, call.in(0), call.in(1), call.in(2), call.out(0), call.out(1), call.out(2),
            attention_shape(call));
}

void run_attention_backward(const Call& call) {
  attention_backward(call.gemm, call.in(0), call.in(1), call.in(2), call.in(3), call.in(4),
                     call.in(5), call.out(0), call.out(1), call.out(2), call.out(3),
                     attention_shape(call));
}

/// Queries, keys and values of one token lie side by side.
struct Packed {
  AttentionShape shape;
  std::int64_t keys;    // elements from a token's queries to its keys
  std::int64_t values;  // elements from a token's queries to its values
};
Packed packed(const Call& call) {
  AttentionShape shape = attention_shape(call);
  const std::int64_t keys = shape.query_stride;
  const std::int64_t values = keys + shape.key_value_stride;
  shape.query_stride = shape.key_value_stride = values + shape.key_value_stride;
  return {shape, keys, values};
}

void run_packed_attention(const Call& call) {
  const auto [shape, keys, values] = packed(call);
  const float* qkv = call.in(0);
  attention(call.gemm, qkv, qkv + keys, qkv + values, call.out(0), call.out(1), call.out(2), shape);
}

void run_packed_attention_backward(const Call& call) {
  const auto [shape, keys, values] = packed(call);
  const float* qkv = call.in(1);
  float* grad = call.out(0);
  attention_backward(call.gemm, call.in(0), qkv, qkv + keys, qkv + values, call.in(2), call.in(3),
                     grad, grad + keys, grad + values, call.out(1), shape);
}

void run_swiglu(const Call& call) {
  swiglu(call.in(0), call.in(1), call.out(0), call.write(0).elems);
}

void run_swiglu_backward(const Call& call) {
  swiglu_backward(call.in(0), call.in(1), call.in(2), call.out(0), call.out(1),
                  call.write(0).elems);
}

GeluKind gelu_kind(const Call& call) {
  return call.integer(Attribute::TanhApproximation) ? GeluKind::Tanh : GeluKind::Erf;
}

void run_gelu(const Call& call) {
  gelu(call.in(0), call.out(0), call.write(0).elems, gelu_kind(call));
}

void run_gelu_backward(const Call& call) {
  gelu_backward(call.in(0), call.in(1), call.out(0), call.write(0).elems, gelu_kind(call));
}

void run_scale(const Call& call) {
  scale(call.in(0), call.single(Attribute::Scale), call.out(0), call.write(0).elems);
}

void run_cross_entropy(const Call& call) {
  const LogitsShape shape{.rows = call.rows(),
                          .vocab = call.integer(Attribute::InFeatures),
                          .first = call.integer(Attribute::FirstRow),
                          .all = call.batch() * call.time()};
  cross_entropy(call.in(0), call.tokens(1), call.out_double(0), call.out(1), shape,
                call.launch.attributes.real(Attribute::LossScale, 1), call.store(0, 2));
}

FloatTensor float_tensor(const Operand& x) {
  if (x.dtype == Dtype::BFloat16) return reinterpret_cast<const BFloat16*>(x.data);
  return reinterpret_cast<const float*>(x.data);
}

void run_add(const Call& call) {
  const Operand& out = call.write(0);
  const FloatTensor a = float_tensor(call.read(0));
  const FloatTensor b = float_tensor(call.read(1));
  if (out.dtype == Dtype::BFloat16)
    add(a, b, reinterpret_cast<BFloat16*>(out.data), out.elems);
  else
    add(a, b, reinterpret_cast<float*>(out.data), out.elems);
}

void run_sum_squares(const Call& call) {
  double sum = 0;
  for (const Operand& part : call.launch.reads)
    sum += sum_squares(reinterpret_cast<const float*>(part.data), part.elems);
  *call.out_double(0) = sum;
}

void run_gradient_norm(const Call& call) {
  const auto norm = static_cast<float>(std::sqrt(*call.in_double(0)));
  const float max_norm = call.single(Attribute::MaxNorm);
  *call.out(0) = norm;
  *call.out(1) = max_norm > 0 ? std::min(1.0f, max_norm / (norm + kClipEpsilon)) : 1.0f;
}

void run_adam(const Call& call) {
  const StepScalars& scalars = call.launch.scalars;
  const AdamStep step{.lr = scalars.learning_rate,
                      .beta1 = call.real(Attribute::Beta1),
                      .beta2 = call.real(Attribute::Beta2),
                      .eps = call.real(Attribute::Epsilon),
                      .weight_decay = call.real(Attribute::WeightDecay),
                      .bias_correction1 = scalars.bias_correction1,
                      .bias_correction2 = scalars.bias_correction2,
                      .decay = call.integer(Attribute::DecoupledDecay) ? AdamStep::Decay::Decoupled
                                                                       : AdamStep::Decay::Coupled};
  adam(call.in(0), *call.in(1), call.out(0), call.out(1), call.out(2), call.write(0).elems, step);
}

void run_sgd(const Call& call) {
  const SgdStep step{.lr = call.launch.scalars.learning_rate,
                     .momentum = call.real(Attribute::Momentum),
                     .weight_decay = call.real(Attribute::WeightDecay)};
  float* momentum_buffer = call.writes(1) ? call.out(1) : nullptr;
  sgd(call.in(0), *call.in(1), call.out(0), momentum_buffer, call.write(0).elems, step);
}

void run_norm(const Call& call) {
  const float epsilon = call.single(Attribute::Epsilon);
  if (call.launch.kernel == Kernel::RmsNorm)
    return rms_norm(call.in(0), call.in(1), call.out(0), call.out(1), call.norm_rows(),
                    call.channels(), epsilon);
  layer_norm(call.in(0), call.in(1), call.in(2), call.out(0), call.out(1), call.out(2),
             call.norm_rows(), call.channels(), epsilon);
}

void run_norm_backward(const Call& call) {
  if (call.launch.kernel == Kernel::RmsNormBackward)
    return rms_norm_backward(call.in(0), call.in(1), call.in(2), call.in(3), call.out(0),
                             call.out(1), call.norm_rows(), call.channels(), call.store(0, 4),
                             call.store(1, 4));
  layer_norm_backward(call.in(0), call.in(1), call.in(2), call.in(3), call.in(4), call.out(0),
                      call.out(1), call.out(2), call.norm_rows(), call.channels(), call.store(0, 5),
                      call.store(1, 5), call.store(2, 5));
}

using Run = void (*)(const Call& call);

/// What runs a kernel; null: the CPU has none yet.
Run run_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::Embedding: return run_embedding;
    case Kernel::EmbeddingBackward: return run_embedding_backward;
    case Kernel::PositionEmbedding: return run_position_embedding;
    case Kernel::PositionEmbeddingBackward: return run_position_embedding_backward;
    case Kernel::RmsNorm:
    case Kernel::LayerNorm: return run_norm;
    case Kernel::RmsNormBackward:
    case Kernel::LayerNormBackward: return run_norm_backward;
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

void launch_wide(Gemm gemm, const Launch& launch) {
  const Run run = run_of(launch.kernel);
  if (!run)
    throw InputError(fmt::format("there is no CPU kernel {} yet", to_string(launch.kernel)));
  run(Call{launch, gemm});
}

/// Float32 copies of a launch's bfloat16 operands in its last workspace.
class WideLaunch {
 public:
  explicit WideLaunch(const Launch& launch)
      : launch_(launch), next_(reinterpret_cast<float*>(launch.writes.back().data)) {
    check(launch.reads.size() + launch.writes.size() <= operands_.size(),
          "a launch has few operands");
    for (const Operand& operand : launch.reads)
      add(operand, Load::Yes);
    for (const Operand& operand : launch.writes.first(launch.writes.size() - 1))
      add(operand, Load::No);
    check(next_ <= reinterpret_cast<float*>(launch.writes.back().data) + launch.writes.back().elems,
          "the workspace holds all operands");
  }

  Launch wide() const {
    const std::span<const Operand> all(operands_.data(), count_);
    return {launch_.kernel, launch_.attributes, all.first(launch_.reads.size()),
            all.subspan(launch_.reads.size()), launch_.scalars};
  }

  /// Rounds the results.
  void store() const {
    for (std::size_t i = launch_.reads.size(); i < count_; ++i) {
      const Operand& result = launch_.writes[i - launch_.reads.size()];
      if (result.dtype == Dtype::BFloat16)
        narrow(reinterpret_cast<const float*>(operands_[i].data),
               reinterpret_cast<BFloat16*>(result.data), result.elems);
    }
  }

 private:
  enum class Load { No, Yes };

  void add(const Operand& operand, Load load) {
    operands_[count_++] = operand.dtype == Dtype::BFloat16 ? widened(operand, load) : operand;
  }

  /// The copy of `operand`; the one that is there when it is the same tensor again.
  Operand widened(const Operand& operand, Load load) {
    for (std::size_t i = 0; i < count_; ++i)
      if (original(i).data == operand.data) return operands_[i];
    const Operand copy{reinterpret_cast<std::byte*>(next_), operand.elems, Dtype::Float32};
    if (load == Load::Yes)
      widen(reinterpret_cast<const BFloat16*>(operand.data), next_, operand.elems);
    next_ += operand.elems;
    return copy;
  }

  const Operand& original(std::size_t i) const {
    return i < launch_.reads.size() ? launch_.reads[i] : launch_.writes[i - launch_.reads.size()];
  }

  const Launch& launch_;
  float* next_;
  std::array<Operand, 16> operands_;
  std::size_t count_ = 0;
};

bool has_narrow_operand(const Launch& launch) {
  const auto narrow = [](const Operand& operand) { return operand.dtype == Dtype::BFloat16; };
  return std::ranges::any_of(launch.reads, narrow) || std::ranges::any_of(launch.writes, narrow);
}

}  // namespace

std::string missing_kernel(Kernel kernel, const Attributes& attributes) {
  if (!run_of(kernel)) return std::string(to_string(kernel));
  // What the kernels do not look at.
  static constexpr std::array kIgnored{
      Attribute::SourceTime, Attribute::ValueHeadDim,    Attribute::Bidirectional,
      Attribute::Alibi,      Attribute::SoftCap,         Attribute::UnitOffset,
      Attribute::OwnWeights, Attribute::NormParameters,  Attribute::Offset,
      Attribute::RotaryDim,  Attribute::RopeInterleaved, Attribute::RopeYarn,
      Attribute::RopeLong,   Attribute::RopeDynamic,     Attribute::OperandBits};
  for (const Attribute attribute : kIgnored)
    if (attributes.has(attribute))
      return fmt::format("{} with {}", to_string(kernel), to_string(attribute));
  return {};
}

void launch(Gemm gemm, const Launch& launch) {
  if (launch.kernel == Kernel::Add || !has_narrow_operand(launch)) return launch_wide(gemm, launch);
  const WideLaunch widened(launch);
  launch_wide(gemm, widened.wide());
  widened.store();
}

}  // namespace shardplan::cpu
