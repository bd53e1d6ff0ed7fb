#pragma once

#include <cstdint>

/// What kernels are told besides their tensors, on every device. Legend of shapes: batch, time,
/// channels (C), heads (H), kv_heads, head_dim (D), vocab (V); rows = batch x time.
namespace shardplan {

/// Target of a token that the loss does not count: PyTorch's ignore_index.
constexpr std::int32_t kIgnoredTarget = -100;

/// Whether a result is stored, or added to what is there.
enum class Store { Overwrite, Accumulate };

/// Layout of a linear layer's weight.
enum class WeightLayout { OutIn, InOut };  // torch.nn.Linear; GPT-2's Conv1D

struct LinearShape {
  std::int64_t rows;
  std::int64_t in_features;
  std::int64_t out_features;
  WeightLayout layout;
};

struct RopeShape {
  std::int64_t batch;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t head_dim;
  double theta;
  double factor = 1;         // linear scaling of positions, or llama3's factor
  double low_frequency = 0;  // llama3 scaling when original_context > 0
  double high_frequency = 0;
  double original_context = 0;
};
enum class RopeDirection { Forward, Backward };

struct AttentionShape {
  std::int64_t batch;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t kv_heads;  // kv head j serves query heads j * heads / kv_heads and following
  std::int64_t head_dim;
  float scale;
  std::int64_t window = 0;        // tokens seen, itself included; 0: all before
  std::int64_t query_stride;      // elements from one token's queries to the next token's
  std::int64_t key_value_stride;  // the same for keys and values
  std::int64_t block_rows;        // query rows handled at once, where the profile says so
};

enum class GeluKind { Erf, Tanh };

/// Logits [rows, vocab] of the rows from `first` on, of `all` rows.
struct LogitsShape {
  std::int64_t rows;
  std::int64_t vocab;
  std::int64_t first;
  std::int64_t all;
};

struct AdamStep {
  // In double precision: 1 - beta2 would lose half its digits in single.
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1;                        // 1 - beta1^t
  double bias_correction2;                        // 1 - beta2^t
  enum class Decay { Decoupled, Coupled } decay;  // AdamW; Adam with L2
};

struct SgdStep {
  double lr, momentum, weight_decay;
};

}  // namespace shardplan
