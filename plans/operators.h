#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "plans/extent.h"
#include "plans/units.h"

namespace shardplan {

/// Micro-batch (sequences) and sequence length (tokens): the two sizes that shapes depend on.
struct Sizes {
  std::int64_t batch = 1;
  std::int64_t time = 1;
};

/// One extent of a tensor: `constant`, times the micro-batch, times the sequence length.
struct Dimension {
  std::int64_t constant = 1;
  bool batch = false;
  bool time = false;

  std::int64_t at(Sizes sizes) const {
    return constant * (batch ? sizes.batch : 1) * (time ? sizes.time : 1);
  }
  bool operator==(const Dimension&) const = default;
};

/// Elements of the largest tensor; their bytes, and sums over a model, stay exact.
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

struct TensorType {
  Dtype dtype = Dtype::Float32;
  std::vector<Dimension> dimensions;

  /// Throws InputError when they are more than kMostElements.
  std::int64_t elements(Sizes sizes) const;
  /// Rows per sequence of a tensor [batch, rows, channels]; 1 for a scalar.
  std::int64_t rows(Sizes sizes) const {
    return dimensions.size() < 2 ? 1 : dimensions[1].at(sizes);
  }
  bool operator==(const TensorType&) const = default;
};

/// [batch, time, channels], the shape of nearly every activation.
TensorType activation(std::int64_t channels, Dtype dtype = Dtype::Float32);

/// Named numbers of an operator or a kernel.
enum class Attribute {
  Batch,        // sequences
  Time,         // tokens per sequence of the output
  SourceTime,   // tokens per sequence of the input, where they are not those of the output
  Rows,         // rows that a launch works on, where they are not Batch x Time but a part of them
  FirstRow,     // first of them
  InFeatures,   // columns of the input
  OutFeatures,  // columns of the output
  Heads,
  KvHeads,
  HeadDim,
  ValueHeadDim,   // of v; absent: HeadDim
  Scale,          // a factor: of attention's scores ahead of the softmax, of a tensor
  Window,         // sliding window in tokens; absent or 0: full causal attention
  Bidirectional,  // 1: every query sees every key
  Alibi,          // 1: a slope per head times the distance is added to the scores
  SoftCap,        // c of c tanh(x / c), applied to attention scores or to logits
  Epsilon,
  UnitOffset,       // 1: a norm multiplies with 1 + weight (Gemma)
  OwnWeights,       // 1: every group of a row has its own weights in a norm
  NormParameters,   // how many of weight and bias a norm has; absent: all
  Offset,           // first column, token or position that is used
  RotaryDim,        // columns of a head that rotate; absent: all
  RotaryOffset,     // first of them
  RopeInterleaved,  // 1: neighbouring columns form a pair (GPT-J), 0: halves do (Llama)
  RopeYarn,         // 1: YaRN's scaling by RopeFactor
  RopeLong,         // 1: LongRoPE's table of factors
  RopeDynamic,      // 1: dynamic NTK scaling by RopeFactor
  RopeTheta,
  RopeFactor,           // linear or llama3 scaling factor
  RopeLowFrequency,     // llama3 scaling: low_freq_factor
  RopeHighFrequency,    // llama3 scaling: high_freq_factor
  RopeOriginalContext,  // llama3 scaling: original_max_position_embeddings
  WeightTransposed,     // 1: the weight is stored [in, out] (GPT-2's Conv1D)
  TanhApproximation,    // 1: tanh GELU, 0: erf GELU
  SecondFeatures,       // columns of the second input
  GroupsPerRow,         // parts of a row that are treated alike: q/k norm has one group per head
  Experts,
  TopK,        // experts per token
  Tokens,      // a number of tokens that does not depend on the sequence length
  Height,      // of an image, in pixels or patches; 1 for a sequence
  Width,       // likewise
  KernelSize,  // of a convolution or pooling, along every axis that is longer than 1
  Stride,
  Padding,
  Fused,        // 1: compiled into one kernel with its neighbours
  OperandBits,  // that a product's operands are rounded to first; absent: none are
  BlockRows,    // query rows that one tile of attention handles; set by the profile
  LossScale,    // factor on the loss, and so on its gradient
  Beta1,
  Beta2,
  WeightDecay,
  DecoupledDecay,  // 1: AdamW, 0: decay is added to the gradient
  Momentum,
  MaxNorm,
};
std::string_view to_string(Attribute attribute);
/// Throws InputError for an unknown name.
Attribute attribute_from(std::string_view name);

/// A small map from Attribute to number; integers are exact up to 2^53.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<Attribute, double>> entries) : entries_(entries) {}

  void set(Attribute attribute, double value);
  bool has(Attribute attribute) const;
  /// The value, or `otherwise` when absent.
  double real(Attribute attribute, double otherwise = 0) const;
  std::int64_t integer(Attribute attribute, std::int64_t otherwise = 0) const {
    return static_cast<std::int64_t>(real(attribute, static_cast<double>(otherwise)));
  }
  std::span<const std::pair<Attribute, double>> entries() const { return entries_; }
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<std::pair<Attribute, double>> entries_;
};

/// Rows of a launch's output: [Batch, Time] of them, or those that the attribute Rows says.
Extent rows_of(const Attributes& attributes);

enum class OperatorKind {
  Input,  // int32 [batch, tokens], or float32 [batch, tokens, channels] (pixels, sound)
  Embedding,
  PositionEmbedding,
  RmsNorm,
  LayerNorm,
  Linear,
  Rope,
  Attention,        // inputs q, k, v
  PackedAttention,  // one input that holds q, k and v side by side (GPT-2)
  SwiGlu,
  Gelu,
  Add,
  Scale,         // times the attribute Scale
  CrossEntropy,  // inputs logits, targets; output: mean loss
  Relu,
  Silu,
  QuickGelu,
  Tanh,
  Sigmoid,
  SoftCap,       // c tanh(x / c)
  GateRows,      // inputs x, one gate per row
  GeGlu,         // inputs gate, up
  PackedSwiGlu,  // one input that holds gate and up side by side
  Slice,         // the same columns of every group of a row
  Concat,        // inputs side by side in every group of a row; a narrower second one is repeated
  RelativePositionBias,  // learned, [heads, queries, keys]
  BiasedAttention,       // inputs q, k, v, bias
  TopK,          // input router scores; output, per token: k weights, then k experts' numbers
  Dispatch,      // inputs x, routing; rows sorted by expert, a token once per expert it goes to
  ExpertLinear,  // inputs sorted rows, routing; every expert multiplies its rows
  Combine,       // inputs sorted rows, routing; weighted sum per token
  Convolution,   // over an image or sequence of channels; output tokens are its positions
  PrependToken,  // a learned token before the others
  SliceTokens,   // some neighbouring tokens
  AveragePool,   // over squares of an image's tokens
  MergeTokens,   // inputs text, image features, token numbers: features at placeholders
};

/// What device code computes; a plan's `compute` instructions name these.
enum class Kernel {
  Embedding,
  EmbeddingBackward,
  PositionEmbedding,
  PositionEmbeddingBackward,
  RmsNorm,
  RmsNormBackward,
  LayerNorm,
  LayerNormBackward,
  Linear,
  LinearBackwardInput,
  LinearBackwardWeight,
  LinearBackwardBias,
  Rope,
  RopeBackward,
  Attention,
  AttentionBackward,
  PackedAttention,
  PackedAttentionBackward,
  SwiGlu,
  SwiGluBackward,
  Gelu,
  GeluBackward,
  Add,
  Scale,
  CrossEntropy,
  Relu,
  ReluBackward,
  Silu,
  SiluBackward,
  QuickGelu,
  QuickGeluBackward,
  Tanh,
  TanhBackward,
  Sigmoid,
  SigmoidBackward,
  SoftCap,
  SoftCapBackward,
  GateRows,
  GateRowsBackward,
  GeGlu,
  GeGluBackward,
  PackedSwiGlu,
  PackedSwiGluBackward,
  Slice,
  SliceBackward,
  Concat,
  ConcatBackward,
  RelativePositionBias,
  RelativePositionBiasBackward,
  BiasedAttention,
  BiasedAttentionBackward,
  TopK,
  TopKBackward,
  Dispatch,
  DispatchBackward,
  ExpertLinear,
  ExpertLinearBackwardInput,
  ExpertLinearBackwardWeight,
  Combine,
  CombineBackward,
  Convolution,
  ConvolutionBackwardInput,
  ConvolutionBackwardWeight,
  ConvolutionBackwardBias,
  PrependToken,
  PrependTokenBackward,
  SliceTokens,
  SliceTokensBackward,
  AveragePool,
  AveragePoolBackward,
  MergeTokens,
  MergeTokensBackward,
  SumSquares,
  GradientNorm,
  Adam,
  Sgd,
  Elementwise,  // any of PyTorch's that is as fast as its operands move: copies, norms, reductions
};
std::string_view to_string(Kernel kernel);
/// Throws InputError for an unknown name.
Kernel kernel_from(std::string_view name);

/// Whose kernels execute the plan: what they keep as workspace differs.
enum class Profile { CpuOneDnn, CpuReference, Cuda, TorchEager, TorchCompile };
std::string_view to_string(Profile profile);
/// Throws InputError that lists the names.
Profile profile_from(std::string_view name);
/// True for PyTorch's kernels.
constexpr bool is_torch(Profile profile) {
  return profile == Profile::TorchEager || profile == Profile::TorchCompile;
}
/// True for our own kernels on a CPU.
constexpr bool is_cpu(Profile profile) {
  return profile == Profile::CpuOneDnn || profile == Profile::CpuReference;
}

/// What an operand of a kernel call is, seen from its operator.
struct Role {
  enum class Kind {
    Input,
    Output,
    Parameter,
    Statistic,  // what forward computes on the side and backward needs (1/std, log-sum-exp)
    OutputGradient,
    InputGradient,
    ParameterGradient,
    Workspace,
  } kind;
  int index = 0;
  bool operator==(const Role&) const = default;
};

/// One kernel of an operator and its operands, in the order of the launcher's arguments.
struct KernelCall {
  Kernel kernel;
  std::vector<Role> reads;
  std::vector<Role> writes;
};

/// An entry of the operator catalogue. What an operator saves for backward is every Input, Output
/// and Statistic that its backward calls read; there is no second list.
struct OperatorSpec {
  OperatorKind kind;
  std::string_view name;
  std::vector<KernelCall> forward;  // none for inputs, else one
  std::vector<KernelCall>
      backward;             // in execution order; absent parameters drop out, and empty calls
  int in_place_input = -1;  // output may take this input's bytes over; -1: never
  bool gradient_passes_through = false;  // the gradient of every input is the output's (Add)
  bool gradient_in_forward = false;      // forward writes InputGradient(0) over Input(0) (loss)
};
const OperatorSpec& spec(OperatorKind kind);
/// The kind of that name. Throws InputError with the nearest name.
OperatorKind operator_kind_from(std::string_view name);
/// All entries, in the order of OperatorKind.
std::span<const OperatorSpec> operator_catalogue();

/// Output type of an operator. Throws InputError when an attribute is missing or impossible, or the
/// inputs do not fit; there must be as many as the catalogue says.
TensorType infer_output(OperatorKind kind, const Attributes& attributes,
                        std::span<const TensorType> inputs);

/// Types of the statistics that forward writes for backward, of an operator with that output.
std::vector<TensorType> statistics_of(OperatorKind kind, const Attributes& attributes,
                                      const TensorType& output);

/// Query rows of one attention tile under `profile`; what the BlockRows attribute is set to.
std::int64_t attention_block_rows(Profile profile);

/// Whether `kernel` works on float32 only under `profile`: operands of other floating-point dtypes
/// are then widened into a last workspace that holds them all, and results rounded once.
bool widens(Kernel kernel, Profile profile);

/// Elements (float32) of workspace that `kernel` needs under `profile`, its last written operand
/// but for the one to widen into; 0: none.
Extent workspace_elems(Kernel kernel, const Attributes& attributes, Profile profile);

/// Floating-point operations of one launch, a multiply-add counted as two; attention counts the
/// causal half only. Batch and Time come from the attributes.
double flops_of(Kernel kernel, const Attributes& attributes);

/// True for kernels that update a parameter: they read its gradient, a factor on it, the parameter
/// and its states, and write the latter two.
bool is_optimizer(Kernel kernel);

bool is_attention(Kernel kernel);
bool is_attention_backward(Kernel kernel);

/// True for launches whose speed is that of the matrix units (products and attention).
bool is_matrix_product(Kernel kernel);

}  // namespace shardplan
