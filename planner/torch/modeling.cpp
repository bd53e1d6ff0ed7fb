#include "planner/torch/modeling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "plans/error.h"

namespace shardplan::torch {
namespace {

using Saves = Pointwise::Saves;

constexpr Pointwise kNegative{.name = "neg"};
constexpr Pointwise kScale{.name = "scale"};
constexpr Pointwise kContiguous{.name = "contiguous"};
constexpr Pointwise kSilu{.name = "silu", .saves = Saves::Input};
constexpr Pointwise kGelu{.name = "gelu", .saves = Saves::Input};
constexpr Pointwise kRelu{.name = "relu", .saves = Saves::Output};
constexpr Pointwise kTanh{.name = "tanh", .saves = Saves::Output};
constexpr Pointwise kSigmoid{.name = "sigmoid", .saves = Saves::Output};
// pow_backward: grad * (2 * self.pow(1)); rsqrt: -0.5 * grad * result.pow(3).
constexpr Pointwise kSquare{.name = "pow", .saves = Saves::Input, .temporaries = 2};
constexpr Pointwise kRsqrt{.name = "rsqrt", .saves = Saves::Output, .temporaries = 2};

Tensor parameter(const ForwardCall& call, std::size_t index) {
  return index < call.parameters.size() ? call.parameters[index] : Tensor{};
}

std::int64_t rows_of(const ForwardCall& call) {
  const std::int64_t channels = call.op.attributes.integer(Attribute::OutFeatures);
  return call.inputs[0].elems / channels;
}

/// torch.nn.Dropout, where the model has it.
Tensor drop(Aten& aten, const ForwardCall& call, const Tensor& x) {
  return call.dropout ? aten.dropout(x) : x;
}

Tensor embedding(Aten& aten, ForwardCall& call) {
  const std::int64_t tokens = call.inputs[0].elems;
  return aten.embedding(call.inputs[0], parameter(call, 0),
                        tokens * call.op.attributes.integer(Attribute::OutFeatures));
}

/// Positions are the same for all sequences of a batch, and added to what they read.
Tensor position_embedding(Aten& aten, ForwardCall& call) {
  const std::int64_t time = call.sizes.integer(Attribute::Time);
  const Tensor positions = aten.constant("position_ids", time, Dtype::Int64);
  const Tensor rows = aten.embedding(positions, parameter(call, 0),
                                     time * call.op.attributes.integer(Attribute::OutFeatures));
  return drop(aten, call, aten.add(call.inputs[0], rows));
}

/// LlamaRMSNorm.forward.
Tensor rms_norm(Aten& aten, ForwardCall& call) {
  const Dtype dtype = call.inputs[0].dtype;
  Tensor hidden = aten.to(call.inputs[0], Dtype::Float32);
  Tensor variance = aten.mean(aten.pointwise(hidden, kSquare), rows_of(call));
  hidden = aten.mul(hidden, aten.pointwise(aten.pointwise(variance, kScale), kRsqrt));
  variance = {};
  const Tensor weight = parameter(call, 0);
  hidden = aten.to(hidden, dtype);
  return weight ? aten.mul(weight, hidden) : hidden;
}

Tensor layer_norm(Aten& aten, ForwardCall& call) {
  return aten.layer_norm(call.inputs[0], parameter(call, 0), parameter(call, 1), rows_of(call));
}

/// Adapters of another dtype than the model's cast what they read (PEFT's _cast_input_dtype). What
/// GPT-2 adds to its residual stream ("c_proj" of attention and MLP) it drops elements of.
Tensor linear(Aten& aten, ForwardCall& call) {
  const Tensor weight = parameter(call, 0);
  const Tensor x = aten.autocasts() ? call.inputs[0] : aten.to(call.inputs[0], weight.dtype);
  const Tensor result = aten.linear(x, weight, parameter(call, 1), call.sizes);
  return call.op.module.ends_with(".c_proj") ? drop(aten, call, result) : result;
}

/// transformers' apply_rotary_pos_emb: x cos + rotate_half(x) sin.
Tensor rotate(Aten& aten, const ForwardCall& call, const Tensor& x) {
  const Tensor straight = aten.mul(x, call.tables[0]);
  const Tensor first = aten.slice(x, x.elems / 2);
  const Tensor second = aten.slice(x, x.elems / 2);
  const Tensor turned = aten.cat({aten.pointwise(second, kNegative), first});
  return aten.add(straight, aten.mul(turned, call.tables[1]));
}

/// Columns of a head that do not rotate are cut off and put back.
Tensor rope(Aten& aten, ForwardCall& call) {
  const Tensor& x = call.inputs[0];
  const std::int64_t head = call.sizes.integer(Attribute::HeadDim);
  const std::int64_t columns = call.sizes.integer(Attribute::RotaryDim, head);
  if (columns == head) return rotate(aten, call, x);
  const std::int64_t rotated = x.elems / head * columns;
  const Tensor rest = aten.slice(x, x.elems - rotated);
  return aten.cat({rotate(aten, call, aten.slice(x, rotated)), rest});
}

std::int64_t query_rows(const ForwardCall& call) {
  return call.sizes.integer(Attribute::Batch) * call.sizes.integer(Attribute::Time) *
         call.sizes.integer(Attribute::Heads);
}

/// Of these model types eager attention computes its softmax in the dtype of queries; of all others
/// in float32.
bool has_narrow_softmax(std::string_view family) {
  constexpr std::array<std::string_view, 8> kFamilies{"gpt2", "gptj",       "gpt_neo", "falcon",
                                                      "bert", "distilbert", "t5",      "whisper"};
  return std::ranges::find(kFamilies, family) != kFamilies.end();
}

/// transformers' repeat_kv: one head of one sequence is read by all without a copy.
Tensor repeat_kv(Aten& aten, const ForwardCall& call, const Tensor& x) {
  const std::int64_t heads = call.sizes.integer(Attribute::KvHeads);
  const bool copies = heads * call.sizes.integer(Attribute::Batch) > 1;
  return copies ? aten.repeat(x, call.sizes.integer(Attribute::Heads) / heads) : x;
}

/// transformers' eager_attention_forward; each tensor goes when Python rebinds its name.
Tensor eager_attention(Aten& aten, const ForwardCall& call, const Tensors& heads) {
  const std::int64_t rows = query_rows(call);
  const Tensor keys = repeat_kv(aten, call, heads[1]);
  const Tensor values = repeat_kv(aten, call, heads[2]);
  Tensor scores = aten.pointwise(
      aten.matmul(heads[0], keys, rows * call.sizes.integer(Attribute::Time)), kScale);
  scores = aten.add(scores, call.mask);
  Tensor weights =
      has_narrow_softmax(call.family) ? aten.wide_operand(scores) : aten.to(scores, Dtype::Float32);
  weights = aten.softmax(weights);
  scores = drop(aten, call, aten.to(weights, heads[0].dtype));
  weights = {};
  const Tensor mixed = aten.matmul(scores, values, rows * call.sizes.integer(Attribute::HeadDim));
  return aten.pointwise(mixed, kContiguous);
}

/// DynamicCache.update: keys and values behind none, which copies them.
Tensors through_cache(Aten& aten, const Tensors& heads, Tensors& cache) {
  Tensors cached{heads[0], aten.cat({heads[1]}), aten.cat({heads[2]})};
  cache.insert(cache.end(), {cached[1], cached[2]});
  return cached;
}

/// transformers' sdpa_attention_forward, which repeats keys and values itself where it has a mask.
Tensor sdpa_attention(Aten& aten, const ForwardCall& call, const Tensors& heads) {
  if (!call.mask) return aten.attention(heads[0], heads[1], heads[2], {}, call.sizes);
  const Tensor keys = repeat_kv(aten, call, heads[1]);
  const Tensor values = repeat_kv(aten, call, heads[2]);
  Attributes sizes = call.sizes;
  sizes.set(Attribute::KvHeads, sizes.real(Attribute::Heads));
  return aten.attention(heads[0], keys, values, call.mask, sizes);
}

Tensor attend(Aten& aten, const ForwardCall& call, Tensors heads) {
  if (call.cache != nullptr) heads = through_cache(aten, heads, *call.cache);
  return call.eager ? eager_attention(aten, call, heads) : sdpa_attention(aten, call, heads);
}

Tensor attention(Aten& aten, ForwardCall& call) { return attend(aten, call, call.inputs); }

Tensor packed_attention(Aten& aten, ForwardCall& call) {
  const std::int64_t tokens =
      call.sizes.integer(Attribute::Batch) * call.sizes.integer(Attribute::Time);
  const std::int64_t head = call.sizes.integer(Attribute::HeadDim);
  const std::int64_t query = tokens * call.sizes.integer(Attribute::Heads) * head;
  const std::int64_t key = tokens * call.sizes.integer(Attribute::KvHeads) * head;
  return attend(aten, call, aten.split(call.inputs[0], {query, key, key}));
}

/// NewGELUActivation, one operator at a time; other GELUs are fused. CUDA's autocast raises to a
/// power in float32.
Tensor gelu(Aten& aten, ForwardCall& call) {
  const Tensor& x = call.inputs[0];
  if (call.family.empty() || call.module_class != "NewGELUActivation")
    return aten.pointwise(x, kGelu);
  const Tensor half = aten.pointwise(x, kScale);
  Tensor inner = aten.pointwise(aten.wide_operand(x), kSquare);
  inner = aten.pointwise(inner, kScale);
  inner = aten.add(x, inner);
  inner = aten.pointwise(inner, kScale);
  inner = aten.pointwise(inner, kTanh);
  inner = aten.pointwise(inner, kScale);
  return aten.mul(half, inner);
}

Tensor swiglu(Aten& aten, ForwardCall& call) {
  return aten.mul(aten.pointwise(call.inputs[0], kSilu), call.inputs[1]);
}

Tensor geglu(Aten& aten, ForwardCall& call) {
  return aten.mul(aten.pointwise(call.inputs[0], kGelu), call.inputs[1]);
}

template <const Pointwise& function>
Tensor pointwise(Aten& aten, ForwardCall& call) {
  return aten.pointwise(call.inputs[0], function);
}

Tensor quick_gelu(Aten& aten, ForwardCall& call) {
  const Tensor& x = call.inputs[0];
  return aten.mul(x, aten.pointwise(aten.pointwise(x, kScale), kSigmoid));
}

Tensor soft_cap(Aten& aten, ForwardCall& call) {
  const Tensor capped = aten.pointwise(aten.pointwise(call.inputs[0], kScale), kTanh);
  return aten.pointwise(capped, kScale);
}

/// An adapter's sum has the dtype of the layer that it adapts, as in PEFT; all other sums the wider
/// one.
Tensor add(Aten& aten, ForwardCall& call) {
  Tensor sum = aten.add(call.inputs[0], call.inputs[1]);
  const bool adapts = call.module_class == "Linear" || call.module_class == "Conv1D";
  return adapts ? aten.to(sum, call.inputs[0].dtype) : sum;
}

/// transformers' ForCausalLMLoss: labels moved by one place (a view for one sequence, a copy for
/// more), logits in float32.
Tensor cross_entropy(Aten& aten, ForwardCall& call) {
  const std::int64_t batch = call.sizes.integer(Attribute::Batch);
  const std::int64_t time = call.sizes.integer(Attribute::Time);
  Tensor logits = aten.to(std::exchange(call.inputs[0], {}), Dtype::Float32);
  // Of a loss in chunks, those of the chunk.
  const std::int64_t count = call.sizes.integer(Attribute::Rows, batch * (time + 1));
  const Tensor padded = aten.constant("labels.padded", count, Dtype::Int64);
  const Tensor labels = batch > 1 && !call.sizes.has(Attribute::Rows)
                            ? aten.constant("labels.shifted", batch * time, Dtype::Int64)
                            : padded;
  const Tensor log_probabilities = aten.log_softmax(std::exchange(logits, {}));
  return aten.nll_loss(log_probabilities, labels);
}

using Forward = Tensor (*)(Aten& aten, ForwardCall& call);

Forward forward_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::Embedding: return embedding;
    case OperatorKind::PositionEmbedding: return position_embedding;
    case OperatorKind::RmsNorm: return rms_norm;
    case OperatorKind::LayerNorm: return layer_norm;
    case OperatorKind::Linear: return linear;
    case OperatorKind::Rope: return rope;
    case OperatorKind::Attention: return attention;
    case OperatorKind::PackedAttention: return packed_attention;
    case OperatorKind::SwiGlu: return swiglu;
    case OperatorKind::GeGlu: return geglu;
    case OperatorKind::Gelu: return gelu;
    case OperatorKind::Relu: return pointwise<kRelu>;
    case OperatorKind::Silu: return pointwise<kSilu>;
    case OperatorKind::Tanh: return pointwise<kTanh>;
    case OperatorKind::Sigmoid: return pointwise<kSigmoid>;
    case OperatorKind::Scale: return pointwise<kScale>;
    case OperatorKind::QuickGelu: return quick_gelu;
    case OperatorKind::SoftCap: return soft_cap;
    case OperatorKind::Add: return add;
    case OperatorKind::CrossEntropy: return cross_entropy;
    default: return nullptr;
  }
}

}  // namespace

bool is_modelled(OperatorKind kind) { return forward_of(kind) != nullptr; }

Tensor forward(Aten& aten, ForwardCall& call) { return forward_of(call.op.kind)(aten, call); }

Tensors rotary_tables(Aten& aten, const Operator& rope, std::int64_t time, Dtype dtype) {
  const std::int64_t head = rope.attributes.integer(Attribute::HeadDim);
  const std::int64_t columns = rope.attributes.integer(Attribute::RotaryDim, head);
  return {aten.constant("rotary.cos", time * columns, dtype),
          aten.constant("rotary.sin", time * columns, dtype)};
}

}  // namespace shardplan::torch
