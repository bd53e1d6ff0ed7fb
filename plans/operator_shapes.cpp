#include <fmt/format.h>

#include "plans/error.h"
#include "plans/operators.h"

namespace shardplan {
namespace {

constexpr Dimension kBatch{1, true, false};
constexpr std::int64_t kMostSize = std::int64_t{1} << 31;  // two of them multiply exactly

std::int64_t channels_of(const TensorType& type) { return type.dimensions.back().constant; }

/// `type` with another number of channels.
TensorType with_channels(TensorType type, std::int64_t channels) {
  type.dimensions.back() = {channels, false, false};
  return type;
}

/// `type` with another number of rows per sequence.
TensorType with_rows(TensorType type, Dimension rows) {
  type.dimensions[1] = rows;
  return type;
}

/// The operator whose output is asked for: throws when its inputs do not fit.
class Inference {
 public:
  Inference(OperatorKind kind, const Attributes& attributes, std::span<const TensorType> inputs)
      : kind_(kind), attributes_(attributes), inputs_(inputs) {}

  TensorType output() const {
    switch (kind_) {
      case OperatorKind::Input: return input();
      case OperatorKind::Embedding: return embedding();
      case OperatorKind::PositionEmbedding:
        return of_channels(0, width(), "positions and input differ in channels");
      case OperatorKind::RmsNorm:
      case OperatorKind::LayerNorm:
        return of_channels(0, width() * groups(), "the weight does not fit the input's channels");
      case OperatorKind::Linear: return linear();
      case OperatorKind::Rope:
        return of_channels(0, size(Attribute::Heads) * size(Attribute::HeadDim),
                           "heads x head_dim differ from the input's channels");
      case OperatorKind::Attention:
      case OperatorKind::BiasedAttention: return attention();
      case OperatorKind::PackedAttention: return packed_attention();
      case OperatorKind::SwiGlu:
      case OperatorKind::GeGlu:
        require(channels(0) == width(), "the inputs do not have the width");
        return same_inputs();
      case OperatorKind::Add: return same_inputs();
      case OperatorKind::Scale: return rows(0);
      case OperatorKind::CrossEntropy: return loss();
      case OperatorKind::Gelu:
      case OperatorKind::Relu:
      case OperatorKind::Silu:
      case OperatorKind::QuickGelu:
      case OperatorKind::Tanh:
      case OperatorKind::Sigmoid:
      case OperatorKind::SoftCap:
        return of_channels(0, width(), "the input does not have the width");
      default: return rearranged();
    }
  }

 private:
  /// A size that must be there.
  std::int64_t size(Attribute attribute) const {
    const std::int64_t value = integer(attribute);
    require(value >= 1 && value <= kMostSize,
            fmt::format("{}: expected 1 to {}", to_string(attribute), kMostSize));
    return value;
  }
  /// One that is `otherwise` when it is not there.
  std::int64_t size(Attribute attribute, std::int64_t otherwise) const {
    return attributes_.has(attribute) ? size(attribute) : otherwise;
  }
  std::int64_t integer(Attribute attribute) const { return attributes_.integer(attribute); }
  std::int64_t width() const { return size(Attribute::OutFeatures); }
  std::int64_t groups() const { return size(Attribute::GroupsPerRow, 1); }

  /// Rows of numbers, [batch, rows, channels]; tokens are none.
  const TensorType& rows(std::size_t i) const {
    const TensorType& type = inputs_[i];
    require(type.dimensions.size() == 3 && type.dtype != Dtype::Int32 && type.dimensions[0].batch,
            "expected rows of numbers");
    return type;
  }
  const TensorType& numbers_of_tokens(std::size_t i) const {
    require(inputs_[i].dimensions.size() == 2 && inputs_[i].dtype == Dtype::Int32,
            "expected numbers of tokens");
    return inputs_[i];
  }
  std::int64_t channels(std::size_t i) const { return channels_of(rows(i)); }
  /// Rows of an image or sound: their number does not depend on the sequence length.
  std::int64_t fixed_rows(std::size_t i) const {
    require(!rows(i).dimensions[1].time, "expected a fixed number of tokens");
    return rows(i).dimensions[1].constant;
  }
  void require(bool fits, std::string_view what) const {
    if (!fits) throw InputError(fmt::format("operator {}: {}", spec(kind_).name, what));
  }
  void require_same_rows(const TensorType& a, const TensorType& b) const {
    require(a.dimensions[1] == b.dimensions[1], "the inputs differ in rows");
  }

  TensorType of_channels(std::size_t i, std::int64_t expected, std::string_view otherwise) const {
    require(channels(i) == expected, otherwise);
    return rows(i);
  }

  TensorType input() const {
    // A number of tokens of its own: labels and images do not have the sequence's length.
    const std::int64_t tokens = size(Attribute::Tokens, 0);
    const Dimension count =
        tokens > 0 ? Dimension{tokens, false, false} : Dimension{1, false, true};
    const std::int64_t channels = size(Attribute::OutFeatures, 0);
    if (channels == 0) return {Dtype::Int32, {kBatch, count}};
    return {Dtype::Float32, {kBatch, count, {channels, false, false}}};
  }

  TensorType embedding() const {
    TensorType type = numbers_of_tokens(0);
    size(Attribute::InFeatures);
    type.dtype = Dtype::Float32;
    type.dimensions.push_back({width(), false, false});
    return type;
  }

  TensorType linear() const {
    const std::int64_t expected = size(Attribute::InFeatures);
    require(channels(0) == expected,
            fmt::format("expects {} input features, gets {}", expected, channels(0)));
    return with_channels(rows(0), width());
  }

  TensorType attention() const {
    const std::int64_t heads = size(Attribute::Heads);
    const std::int64_t kv_heads = size(Attribute::KvHeads);
    const std::int64_t head = size(Attribute::HeadDim);
    const std::int64_t value = size(Attribute::ValueHeadDim, head);
    require(channels(0) == heads * head && channels(1) == kv_heads * head &&
                channels(2) == kv_heads * value,
            "heads x head_dim differ from the channels of q, k or v");
    require(heads % kv_heads == 0, "kv_heads do not divide heads");
    require_same_rows(rows(1), rows(2));
    if (kind_ == OperatorKind::BiasedAttention) {
      const TensorType& bias = inputs_[3];
      require(bias.dimensions.size() == 3 && bias.dimensions[0].constant == heads &&
                  bias.dimensions[1] == rows(0).dimensions[1] &&
                  bias.dimensions[2] == rows(1).dimensions[1],
              "the bias is not [heads, queries, keys]");
    }
    return with_channels(rows(0), heads * value);
  }

  TensorType packed_attention() const {
    const std::int64_t query = size(Attribute::Heads) * size(Attribute::HeadDim);
    const std::int64_t key = size(Attribute::KvHeads) * size(Attribute::HeadDim);
    require(channels(0) == query + 2 * key, "the input does not hold q, k and v");
    require(query % key == 0, "kv_heads do not divide heads");
    return with_channels(rows(0), query);
  }

  TensorType same_inputs() const {
    require(rows(0) == rows(1), "both inputs must have one shape");
    return rows(0);
  }

  TensorType rearranged() const {
    switch (kind_) {
      case OperatorKind::GateRows:
        require(channels(1) == 1, "the second input holds one gate per row");
        require_same_rows(rows(0), rows(1));
        return of_channels(0, width(), "the input does not have the width");
      case OperatorKind::PackedSwiGlu:
        require(channels(0) == 2 * width(), "the input does not hold gate and up");
        return with_channels(rows(0), width());
      case OperatorKind::Slice: return slice();
      case OperatorKind::Concat: return concat();
      case OperatorKind::RelativePositionBias: {
        size(Attribute::InFeatures);
        const Dimension time{1, false, true};
        return {Dtype::Float32, {{width(), false, false}, time, time}};
      }
      case OperatorKind::TopK:
        require(channels(0) == size(Attribute::Experts), "one score per expert is expected");
        require(size(Attribute::TopK) <= size(Attribute::Experts), "more experts than there are");
        return with_channels(rows(0), 2 * size(Attribute::TopK));
      case OperatorKind::Dispatch:
      case OperatorKind::ExpertLinear:
      case OperatorKind::Combine: return routed_rows();
      default: return moved_tokens();
    }
  }

  TensorType slice() const {
    const std::int64_t group = size(Attribute::InFeatures);
    require(channels(0) == groups() * group && integer(Attribute::Offset) >= 0 &&
                integer(Attribute::Offset) + width() <= group,
            "the columns do not lie inside the input's groups");
    return with_channels(rows(0), groups() * width());
  }

  TensorType concat() const {
    const std::int64_t first = size(Attribute::InFeatures);
    const std::int64_t second = width() - first;
    require_same_rows(rows(0), rows(1));
    require(channels(0) == groups() * first && channels(1) == size(Attribute::SecondFeatures) &&
                second > 0 && (channels(1) == second || channels(1) == groups() * second),
            "the inputs do not fill the groups of a row");
    return with_channels(rows(0), groups() * width());
  }

  TensorType routed_rows() const {
    require(channels(0) == size(Attribute::InFeatures), "the rows do not have the width");
    const Dimension& from = rows(0).dimensions[1];
    const Dimension& routed = rows(1).dimensions[1];
    const std::int64_t top_k =
        kind_ == OperatorKind::ExpertLinear ? channels(1) / 2 : size(Attribute::TopK);
    require(top_k > 0 && channels(1) == 2 * top_k, "the routing has another number of experts");
    Dimension sorted = routed;
    sorted.constant *= top_k;
    if (kind_ == OperatorKind::ExpertLinear) {
      size(Attribute::Experts);
      require(from == sorted, "the rows are not those of the routing");
      return with_channels(rows(0), width());
    }
    require(width() == size(Attribute::InFeatures), "moving rows keeps their width");
    const bool dispatches = kind_ == OperatorKind::Dispatch;
    require(from == (dispatches ? routed : sorted), "the rows are not those of the routing");
    return with_rows(rows(0), dispatches ? sorted : routed);
  }

  /// Positions that a kernel takes on an image or sequence.
  Dimension positions() const {
    const std::int64_t kernel = size(Attribute::KernelSize);
    const std::int64_t padding = integer(Attribute::Padding);
    require(padding >= 0 && padding < kernel, "padding: expected less than kernel_size");
    const auto extent = [&](Attribute side) {
      const std::int64_t length = size(side, 1);
      if (length == 1) return length;
      require(length + 2 * padding >= kernel, "the kernel does not fit the input");
      return (length + 2 * padding - kernel) / size(Attribute::Stride, 1) + 1;
    };
    require(fixed_rows(0) == size(Attribute::Height, 1) * size(Attribute::Width, 1),
            "height x width differ from the input's tokens");
    return {extent(Attribute::Height) * extent(Attribute::Width), false, false};
  }

  TensorType moved_tokens() const {
    switch (kind_) {
      case OperatorKind::Convolution:
        require(channels(0) == size(Attribute::InFeatures), "the input has other channels");
        return with_channels(with_rows(rows(0), positions()), width());
      case OperatorKind::AveragePool:
        require(channels(0) == width(), "the input does not have the width");
        return with_rows(rows(0), positions());
      case OperatorKind::PrependToken:
        require(channels(0) == width(), "the input does not have the width");
        return with_rows(rows(0), {fixed_rows(0) + 1, false, false});
      case OperatorKind::SliceTokens: {
        const std::int64_t first = integer(Attribute::Offset);
        require(channels(0) == width() && first >= 0 &&
                    first + size(Attribute::Tokens) <= fixed_rows(0),
                "the tokens do not lie inside the input");
        return with_rows(rows(0), {size(Attribute::Tokens), false, false});
      }
      case OperatorKind::MergeTokens:
        require(channels(0) == width() && channels(1) == width(),
                "text and features differ in channels");
        require_same_rows(rows(0), numbers_of_tokens(2));
        return rows(0);
      default: break;
    }
    check(false, "every operator has an output");
    return {};
  }

  TensorType loss() const {
    require(channels(0) == size(Attribute::InFeatures),
            "logits do not have the vocabulary's width");
    require_same_rows(rows(0), numbers_of_tokens(1));
    return {Dtype::Float64, {{1, false, false}}};
  }

  OperatorKind kind_;
  const Attributes& attributes_;
  std::span<const TensorType> inputs_;
};

}  // namespace

std::int64_t TensorType::elements(Sizes sizes) const {
  std::int64_t product = 1;
  for (const Dimension& dimension : dimensions)
    if (__builtin_mul_overflow(product, dimension.at(sizes), &product) || product > kMostElements)
      throw InputError(fmt::format("a tensor of more than {} elements", kMostElements));
  return product;
}

TensorType activation(std::int64_t channels, Dtype dtype) {
  return {dtype, {{1, true, false}, {1, false, true}, {channels, false, false}}};
}

TensorType infer_output(OperatorKind kind, const Attributes& attributes,
                        std::span<const TensorType> inputs) {
  return Inference(kind, attributes, inputs).output();
}

std::vector<TensorType> statistics_of(OperatorKind kind, const Attributes& a,
                                      const TensorType& output) {
  switch (kind) {
    case OperatorKind::RmsNorm:
    case OperatorKind::LayerNorm: {
      const TensorType per_group = with_channels(output, a.integer(Attribute::GroupsPerRow, 1));
      if (kind == OperatorKind::RmsNorm) return {per_group};
      return {per_group, per_group};
    }
    case OperatorKind::Attention:
    case OperatorKind::PackedAttention:
    case OperatorKind::BiasedAttention:
      return {{Dtype::Float32,
               {kBatch, {a.integer(Attribute::Heads), false, false}, output.dimensions[1]}}};
    default: return {};
  }
}

}  // namespace shardplan
