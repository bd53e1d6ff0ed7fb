#include "plans/kernel_operands.h"

namespace shardplan {
namespace {

constexpr std::int64_t kAny = OperandSizes::kAny;

OperandSizes norm_sizes(const Attributes& a, std::int64_t rows, int statistics, bool backward) {
  const std::int64_t width = a.integer(Attribute::OutFeatures);
  const std::int64_t groups = rows * a.integer(Attribute::GroupsPerRow, 1);
  const std::int64_t elems = groups * width;
  OperandSizes sizes;
  if (backward) {
    sizes = {{elems, elems, width}, {elems, width}};
    sizes.reads.insert(sizes.reads.end(), statistics, groups);
    if (statistics == 2) sizes.writes.push_back(width);  // LayerNorm's bias
    return sizes;
  }
  sizes = {{elems, width}, {elems}};
  if (statistics == 2) sizes.reads.push_back(width);
  sizes.writes.insert(sizes.writes.end(), statistics, groups);
  return sizes;
}

OperandSizes attention_sizes(const Attributes& a, std::int64_t rows, bool packed, bool backward) {
  const std::int64_t query = rows * a.integer(Attribute::Heads) * a.integer(Attribute::HeadDim);
  const std::int64_t key = rows * a.integer(Attribute::KvHeads) * a.integer(Attribute::HeadDim);
  const std::int64_t lse = rows * a.integer(Attribute::Heads);
  const std::vector<std::int64_t> inputs =
      packed ? std::vector{query + 2 * key} : std::vector{query, key, key};
  OperandSizes sizes{inputs, {query, lse, kAny}};
  if (backward) {
    sizes.reads.insert(sizes.reads.begin(), query);
    sizes.reads.insert(sizes.reads.end(), {query, lse});
    sizes.writes = inputs;
    sizes.writes.push_back(kAny);
  }
  sizes.optional_writes = 1;
  return sizes;
}

}  // namespace

OperandSizes operand_sizes(Kernel kernel, const Attributes& a) {
  const std::int64_t rows = a.integer(Attribute::Batch) * a.integer(Attribute::Time);
  const std::int64_t in = a.integer(Attribute::InFeatures);
  const std::int64_t out = a.integer(Attribute::OutFeatures);
  const std::int64_t heads = rows * a.integer(Attribute::Heads) * a.integer(Attribute::HeadDim);
  switch (kernel) {
    case Kernel::Embedding: return {{rows, in * out}, {rows * out}};
    case Kernel::EmbeddingBackward: return {{rows * out, rows}, {in * out}};
    case Kernel::PositionEmbedding: return {{rows * out, in * out}, {rows * out}};
    case Kernel::PositionEmbeddingBackward: return {{rows * out}, {in * out}};
    case Kernel::RmsNorm: return norm_sizes(a, rows, 1, false);
    case Kernel::RmsNormBackward: return norm_sizes(a, rows, 1, true);
    case Kernel::LayerNorm: return norm_sizes(a, rows, 2, false);
    case Kernel::LayerNormBackward: return norm_sizes(a, rows, 2, true);
    case Kernel::Linear: return {{rows * in, in * out, out}, {rows * out}, 1};
    case Kernel::LinearBackwardInput: return {{rows * out, in * out}, {rows * in}};
    case Kernel::LinearBackwardWeight: return {{rows * out, rows * in}, {in * out}};
    case Kernel::LinearBackwardBias: return {{rows * out}, {out}};
    case Kernel::Rope:
    case Kernel::RopeBackward: return {{heads}, {heads}};
    case Kernel::Attention: return attention_sizes(a, rows, false, false);
    case Kernel::AttentionBackward: return attention_sizes(a, rows, false, true);
    case Kernel::PackedAttention: return attention_sizes(a, rows, true, false);
    case Kernel::PackedAttentionBackward: return attention_sizes(a, rows, true, true);
    case Kernel::SwiGlu: return {{rows * out, rows * out}, {rows * out}};
    case Kernel::SwiGluBackward:
      return {{rows * out, rows * out, rows * out}, {rows * out, rows * out}};
    case Kernel::Gelu: return {{rows * out}, {rows * out}};
    case Kernel::GeluBackward: return {{rows * out, rows * out}, {rows * out}};
    case Kernel::Add: return {.reads = {kAny, kAny}, .writes = {kAny}, .one_size = true};
    case Kernel::Scale: return {.reads = {kAny}, .writes = {kAny}, .one_size = true};
    case Kernel::CrossEntropy: return {{rows * in, rows}, {1, rows * in}};
    case Kernel::SumSquares: return {.reads = {}, .writes = {1}, .more_reads = true};
    case Kernel::GradientNorm: return {{1}, {1, 1}};
    case Kernel::Adam:
      return {.reads = {kAny, 1, kAny, kAny, kAny}, .writes = {kAny, kAny, kAny}, .one_size = true};
    case Kernel::Sgd:
      return {.reads = {kAny, 1, kAny, kAny},
              .writes = {kAny, kAny},
              .optional_reads = 1,
              .optional_writes = 1,
              .one_size = true};
  }
  return {};
}

}  // namespace shardplan
