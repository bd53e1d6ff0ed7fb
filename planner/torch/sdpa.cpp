#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/torch/aten.h"

namespace shardplan::torch {
namespace {

constexpr Dtype kBool = Dtype::UInt8;
constexpr Pointwise kScale{.name = "scale"};
constexpr Pointwise kContiguous{.name = "contiguous"};

std::int64_t query_rows(const Attributes& sizes) {
  return sizes.integer(Attribute::Batch) * sizes.integer(Attribute::Time) *
         sizes.integer(Attribute::Heads);
}

std::int64_t value_dim(const Attributes& sizes) {
  return sizes.integer(Attribute::ValueHeadDim, sizes.integer(Attribute::HeadDim));
}

/// Queries that read the same keys and values.
std::int64_t readers(const Attributes& sizes) {
  return sizes.integer(Attribute::Heads) / sizes.integer(Attribute::KvHeads);
}

}  // namespace

/// A call of a fused kernel.
struct Aten::Fused {
  Tensors heads;  // queries, keys, values
  Tensor mask;
  std::int64_t elems = 0;           // of the result
  std::int64_t statistics = 0;      // log-sum-exps, one for every row
  std::int64_t random_numbers = 0;  // seed and offset of dropout
};

Tensor Aten::attention(const Tensor& query, const Tensor& key, const Tensor& value,
                       const Tensor& mask, const Attributes& sizes) {
  Tensors heads{operand(query), operand(key), operand(value)};
  switch (settings_.backend) {
    case SdpaBackend::Math: return math_attention(heads, mask, sizes);
    case SdpaBackend::Flash:
      if (!mask) return flash_attention(std::move(heads), sizes);
      [[fallthrough]];  // it takes no mask
    case SdpaBackend::Efficient: break;
  }
  return efficient_attention(std::move(heads), mask, sizes);
}

/// CUDA's flash kernel takes heads of a multiple of 8: others are padded, and the result is a part
/// (pad_last_dim). A CPU's has no random state.
Tensor Aten::flash_attention(Tensors heads, const Attributes& sizes) {
  constexpr std::int64_t kHeadMultiple = 8;
  constexpr std::int64_t kRandomNumbers = 3;
  const std::int64_t head = sizes.integer(Attribute::HeadDim);
  const std::int64_t padded = settings_.cpu ? head : round_up(head, kHeadMultiple);
  const std::int64_t rows = query_rows(sizes);
  const std::int64_t elems = rows * value_dim(sizes);
  if (padded != head)
    for (Tensor& one : heads)
      one = pad(one, one.elems / head * padded);
  const Tensor result = fused_attention({.heads = heads,
                                         .mask = {},
                                         .elems = elems / head * padded,
                                         .statistics = rows,
                                         .random_numbers = settings_.cpu ? 0 : kRandomNumbers},
                                        sizes);
  return padded == head ? result : pointwise(slice(result, elems), kContiguous);
}

/// CUDA's memory-efficient kernel: keys and values once for every head, log-sum-exps of a multiple
/// of 32 rows (kAlignLSE).
Tensor Aten::efficient_attention(Tensors heads, const Tensor& mask, const Attributes& sizes) {
  constexpr std::int64_t kRowMultiple = 32;
  constexpr std::int64_t kRandomNumbers = 2;
  const std::int64_t rows = query_rows(sizes);
  const std::int64_t time = sizes.integer(Attribute::Time);
  heads[1] = repeat(heads[1], readers(sizes));
  heads[2] = repeat(heads[2], readers(sizes));
  return fused_attention({.heads = heads,
                          .mask = mask ? additive_mask(mask, heads[0].dtype) : Tensor{},
                          .elems = rows * value_dim(sizes),
                          .statistics = rows / time * round_up(time, kRowMultiple),
                          .random_numbers = kRandomNumbers},
                         sizes);
}

Tensor Aten::fused_attention(const Fused& kernel, const Attributes& sizes) {
  const Tensor& q = kernel.heads[0];
  const Tensor& k = kernel.heads[1];
  const Tensor& v = kernel.heads[2];
  const bool needed = q.requires_grad || k.requires_grad || v.requires_grad;
  std::vector<SavedTensor> saved{save(q, needed), save(k, needed), save(v, needed)};
  if (kernel.mask) saved.push_back(save(kernel.mask, needed));
  Tensor result = make("attention", kernel.elems, q.dtype);
  const Tensor log_sum_exp = make("attention.log_sum_exp", kernel.statistics, Dtype::Float32);
  launch("attention", {q, k, v, kernel.mask}, {result, log_sum_exp}, Kernel::Attention, sizes);
  saved.push_back(save(result, needed));
  saved.push_back(save(log_sum_exp, needed));
  if (kernel.random_numbers > 0)
    saved.push_back(
        save(make("attention.random_state", kernel.random_numbers, Dtype::Int64), needed));
  const auto backward = [=, this, q_elems = q.elems, k_elems = k.elems, v_elems = v.elems,
                         rows = query_rows(sizes)](const Tensors& g) {
    Tensors reads{g[0]};
    for (const SavedTensor& one : saved)
      reads.push_back(one.unpack());
    Tensors written{make("attention.grad_q", q_elems, g[0].dtype),
                    make("attention.grad_k", k_elems, g[0].dtype),
                    make("attention.grad_v", v_elems, g[0].dtype)};
    Tensors gradients = written;
    if (!settings_.fake) {
      written.push_back(make("attention.dq_accumulator", q_elems, Dtype::Float32));
      written.push_back(make("attention.softmax_d", rows, Dtype::Float32));
    }
    launch("attention.backward", reads, written, Kernel::AttentionBackward, sizes);
    return gradients;
  };
  record("attention", result, {q, k, v}, backward);
  return result;
}

/// _scaled_dot_product_attention_math (aten/src/ATen/native/transformers/attention.cpp): one
/// operator at a time, in float32 where operands are narrower; its locals live until it returns.
Tensor Aten::math_attention(const Tensors& heads, const Tensor& given_mask,
                            const Attributes& sizes) {
  const Dtype dtype = heads[0].dtype;
  const Tensor wide_query = to(heads[0], Dtype::Float32);
  const Tensor wide_key = to(heads[1], Dtype::Float32);
  const Tensor wide_value = to(heads[2], Dtype::Float32);
  const Tensor query = pointwise(wide_query, kScale);
  const Tensor mask = additive_mask(given_mask ? given_mask : causal_mask(sizes), Dtype::Float32);
  const Tensor key = repeat(wide_key, readers(sizes));
  const Tensor value = repeat(wide_value, readers(sizes));
  const std::int64_t rows = query_rows(sizes);
  Tensor weights = bmm(query, pointwise(key, kScale), rows * sizes.integer(Attribute::Time));
  if (settings_.fake)
    weights = add(weights, mask);
  else
    launch("add_", {weights, mask}, {weights}, Kernel::Add);
  weights = safe_softmax(weights);
  const Tensor mixed = bmm(weights, value, rows * value_dim(sizes));
  const Tensor result = to(mixed, dtype);
  to(weights, dtype);  // its second result, which nobody keeps
  return pointwise(result, kContiguous);
}

/// A lower triangle of ones, of one byte each.
Tensor Aten::causal_mask(const Attributes& sizes) {
  const std::int64_t time = sizes.integer(Attribute::Time);
  const Tensor ones = make("mask.ones", time * time, kBool);
  launch("mask.ones", {}, {ones});
  Tensor lower = like("mask.tril", ones);
  launch("mask.tril", {ones}, {lower});
  return lower;
}

/// convert_boolean_attn_mask. Fake tensors of reference figures pass masks on as they are.
Tensor Aten::additive_mask(const Tensor& mask, Dtype dtype) {
  if (settings_.fake && settings_.backend != SdpaBackend::Math) return mask;
  Tensor added = make("mask.zeros", mask.elems, dtype);
  launch("mask.zeros", {}, {added});
  const Tensor hidden = like("mask.logical_not", mask);
  launch("mask.logical_not", {mask}, {hidden});
  launch("mask.masked_fill_", {hidden}, {added});
  return added;
}

/// A softmax whose rows are zero where all is hidden.
Tensor Aten::safe_softmax(const Tensor& x) {
  Tensors within;
  if (!settings_.fake) {
    within = {like("softmax", x), make("softmax.hidden", x.elems, kBool)};
    launch("softmax", {x}, within);
  }
  return pointwise(x, {.name = "safe_softmax", .saves = Pointwise::Saves::Output});
}

}  // namespace shardplan::torch
