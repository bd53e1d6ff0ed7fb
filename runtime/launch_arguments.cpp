#include "runtime/launch_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plans/error.h"

namespace shardplan {

Store LaunchArguments::store(std::size_t i, std::size_t own) const {
  const auto more = launch.reads.subspan(std::min(own, launch.reads.size()));
  const bool adds =
      std::ranges::any_of(more, [&](const Operand& read) { return read.data == write(i).data; });
  return adds ? Store::Accumulate : Store::Overwrite;
}

void LaunchArguments::expect(bool has_operand) const {
  if (!has_operand)
    throw InputError(fmt::format("kernel {} has {} reads and {} writes, expected more",
                                 to_string(launch.kernel), launch.reads.size(),
                                 launch.writes.size()));
}

LinearShape linear_shape(const LaunchArguments& call) {
  return {call.rows(), call.integer(Attribute::InFeatures), call.channels(),
          call.integer(Attribute::WeightTransposed) ? WeightLayout::InOut : WeightLayout::OutIn};
}

RopeShape rope_shape(const LaunchArguments& call) {
  return {.batch = call.batch(),
          .time = call.time(),
          .heads = call.integer(Attribute::Heads),
          .head_dim = call.integer(Attribute::HeadDim),
          .theta = call.real(Attribute::RopeTheta),
          .factor = call.launch.attributes.real(Attribute::RopeFactor, 1),
          .low_frequency = call.real(Attribute::RopeLowFrequency),
          .high_frequency = call.real(Attribute::RopeHighFrequency),
          .original_context = call.real(Attribute::RopeOriginalContext)};
}

AttentionShape attention_shape(const LaunchArguments& call) {
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

PackedAttentionShape packed_attention_shape(const LaunchArguments& call) {
  AttentionShape shape = attention_shape(call);
  const std::int64_t keys = shape.query_stride;
  const std::int64_t values = keys + shape.key_value_stride;
  shape.query_stride = shape.key_value_stride = values + shape.key_value_stride;
  return {shape, keys, values};
}

GeluKind gelu_kind(const LaunchArguments& call) {
  return call.integer(Attribute::TanhApproximation) ? GeluKind::Tanh : GeluKind::Erf;
}

LogitsShape logits_shape(const LaunchArguments& call) {
  return {.rows = call.rows(),
          .vocab = call.integer(Attribute::InFeatures),
          .first = call.integer(Attribute::FirstRow),
          .all = call.batch() * call.time()};
}

double loss_scale(const LaunchArguments& call) {
  return call.launch.attributes.real(Attribute::LossScale, 1);
}

AdamStep adam_step(const LaunchArguments& call) {
  const StepScalars& scalars = call.launch.scalars;
  return {.lr = scalars.learning_rate,
          .beta1 = call.real(Attribute::Beta1),
          .beta2 = call.real(Attribute::Beta2),
          .eps = call.real(Attribute::Epsilon),
          .weight_decay = call.real(Attribute::WeightDecay),
          .bias_correction1 = scalars.bias_correction1,
          .bias_correction2 = scalars.bias_correction2,
          .decay = call.integer(Attribute::DecoupledDecay) ? AdamStep::Decay::Decoupled
                                                           : AdamStep::Decay::Coupled};
}

SgdStep sgd_step(const LaunchArguments& call) {
  return {.lr = call.launch.scalars.learning_rate,
          .momentum = call.real(Attribute::Momentum),
          .weight_decay = call.real(Attribute::WeightDecay)};
}

std::string unsupported_attribute(Kernel kernel, const Attributes& attributes) {
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

}  // namespace shardplan
