#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/families/part.h"
#include "plans/operators.h"

namespace shardplan {

enum class Bias { No, Yes };

/// A normalisation layer of a family.
struct Norm {
  enum class Kind { Rms, Layer } kind = Kind::Rms;
  std::string class_name;  // "LlamaRMSNorm", "LayerNorm"
  double epsilon = 1e-6;
  int parameters = 1;        // weight, then bias; 0: neither
  bool unit_offset = false;  // multiplies with 1 + weight (Gemma)
};
/// torch.nn.LayerNorm with weight and bias.
Norm layer_norm(double epsilon);

/// The function between the projections of an MLP.
struct Activation {
  OperatorKind kind = OperatorKind::Silu;
  bool tanh_approximation = false;            // of GELU
  std::string class_name = "SiLUActivation";  // transformers' module
};

/// Experts of a block and who sees them.
struct Mixture {
  std::int64_t experts = 0;  // 0: none
  std::int64_t top_k = 0;    // per token
  std::int64_t intermediate = 0;
  std::int64_t shared_intermediate = 0;  // 0: no shared expert
};

/// DeepSeek's multi-head latent attention.
struct Latent {
  std::int64_t query_rank = 0;  // 0: queries are not compressed
  std::int64_t key_value_rank = 0;
  std::int64_t plain_dim = 0;    // columns of a head that do not rotate
  std::int64_t rotated_dim = 0;  // columns that do; those of keys are shared by the heads
};

/// How one projection holds queries, keys and values.
enum class Packing {
  ByRow,    // all queries, then all keys, then all values
  ByGroup,  // the queries of a key, that key and its value, by key-value head
};

/// The sizes and constants of a block, and its modules. What a block does follows from the roles of
/// its modules: a norm before, after or behind the addition, packed or separate projections, gated
/// or plain MLP, experts.
struct Block {
  std::string class_name;
  std::vector<Part> parts;
  std::int64_t channels = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  // 0: head_dim
  Norm norm;
  Norm query_key_norm;                // of q_norm and k_norm
  bool normalises_whole_row = false;  // by q_norm and k_norm, instead of head by head
  bool norms_per_head_weights = false;
  Bias qkv_bias = Bias::No;
  Bias key_bias = Bias::No;  // of a separate key projection
  Bias output_bias = Bias::No;
  Bias mlp_bias = Bias::No;
  std::string linear_class = "Linear";  // or GPT-2's "Conv1D"
  double residual_deviation = 0;        // of Conv1Ds that feed the residual stream
  Packing packing = Packing::ByRow;
  Activation activation;
  bool rotates = false;
  Attributes rope;          // constants of rotation, without heads
  double scale = 1;         // softmax scale
  std::int64_t window = 0;  // tokens; 0: full attention
  double soft_cap = 0;      // of attention scores; 0: none
  bool alibi = false;
  bool bidirectional = false;
  bool parallel = false;             // attention and MLP read the same residual stream
  double residual_scale = 1;         // of what is added to the residual stream
  std::int64_t memory_channels = 0;  // of what cross-attention reads; 0: channels
  std::int64_t relative_buckets = 0;
  Mixture mixture;
  Latent latent;

  std::int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
};

}  // namespace shardplan
