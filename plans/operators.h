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

struct TensorType {
  Dtype dtype = Dtype::Float32;
  std::vector<Dimension> dimensions;

  std::int64_t elements(Sizes sizes) const;
  bool operator==(const TensorType&) const = default;
};

/// [batch, time, channels], the shape of nearly every activation.
TensorType activation(std::int64_t channels, Dtype dtype = Dtype::Float32);

/// Named numbers of an operator or a kernel.
enum class Attribute {
  Batch,        // sequences
  Time,         // tokens per sequence
  InFeatures,   // columns of the input
  OutFeatures,  // columns of the output
  Heads,
  KvHeads,
  HeadDim,
  Scale,   // a factor: of attention's scores ahead of the softmax, of a tensor
  Window,  // sliding window in tokens; absent or 0: full causal attention
  Epsilon,
  RopeTheta,
  RopeFactor,           // linear or llama3 scaling factor
  RopeLowFrequency,     // llama3 scaling: low_freq_factor
  RopeHighFrequency,    // llama3 scaling: high_freq_factor
  RopeOriginalContext,  // llama3 scaling: original_max_position_embeddings
  WeightTransposed,     // 1: the weight is stored [in, out] (GPT-2's Conv1D)
  TanhApproximation,    // 1: tanh GELU, 0: erf GELU
  GroupsPerRow,         // normalisation over parts of a row: q/k norm has one group per head
  BlockRows,            // query rows that one tile of attention handles; set by the profile
  LossScale,            // factor on the loss, and so on its gradient
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

enum class OperatorKind {
  Input,  // tokens or targets of the batch, int32 [batch, time]
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
  SumSquares,
  GradientNorm,
  Adam,
  Sgd,
};
std::string_view to_string(Kernel kernel);
/// Throws InputError for an unknown name.
Kernel kernel_from(std::string_view name);

/// Whose kernels execute the plan: what they keep as workspace differs.
enum class Profile { CpuOneDnn, CpuReference, Cuda, TorchEager, TorchCompile };
std::string_view to_string(Profile profile);
/// Throws InputError that lists the names.
Profile profile_from(std::string_view name);
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
      backward;             // in execution order; calls about absent parameters are skipped
  int in_place_input = -1;  // output may take this input's bytes over; -1: never
  bool gradient_passes_through = false;  // the gradient of every input is the output's (Add)
  bool gradient_in_forward = false;      // forward writes InputGradient(0) over Input(0) (loss)
};
const OperatorSpec& spec(OperatorKind kind);
/// The kind of that name. Throws InputError with the nearest name.
OperatorKind operator_kind_from(std::string_view name);
/// All entries, in the order of OperatorKind.
std::span<const OperatorSpec> operator_catalogue();

/// Output type of an operator. Throws InputError when the inputs do not fit the attributes.
TensorType infer_output(OperatorKind kind, const Attributes& attributes,
                        std::span<const TensorType> inputs);

/// Types of the statistics that forward writes for backward.
std::vector<TensorType> statistics_of(OperatorKind kind, const Attributes& attributes);

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

/// True for launches whose speed is that of the matrix units (products and attention).
bool is_matrix_product(Kernel kernel);

}  // namespace shardplan
