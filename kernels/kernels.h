#pragma once

#include <cstdint>
#include <variant>

#include "kernels/bfloat16.h"
#include "kernels/gemm.h"
#include "plans/units.h"

namespace shardplan {
/// Target of a token that the loss does not count: PyTorch's ignore_index.
constexpr std::int32_t kIgnoredTarget = -100;
}  // namespace shardplan

/// Every launcher, in single precision. Legend of shapes: batch, time, channels (C), heads (H),
/// kv_heads, head_dim (D), vocab (V); rows = batch x time. All tensors are dense and row-major.
namespace shardplan::cpu {

/// Whether a result is stored, or added to what is there.
enum class Store { Overwrite, Accumulate };

/// out[rows, channels] = weight[tokens[row]]. Throws InputError for a token outside [0, vocab).
void embedding(const std::int32_t* tokens, const float* weight, float* out, std::int64_t rows,
               std::int64_t vocab, std::int64_t channels);
/// grad_weight[vocab, channels]; rows are added in order, so the result does not depend on threads.
void embedding_backward(const float* grad_out, const std::int32_t* tokens, float* grad_weight,
                        std::int64_t rows, std::int64_t vocab, std::int64_t channels, Store store);

/// out = x + weight[time]; x and out may be the same.
void position_embedding(const float* x, const float* weight, float* out, std::int64_t batch,
                        std::int64_t time, std::int64_t channels);
/// grad_weight[positions, channels]: the rows from `time` on get 0 (or stay, when accumulating).
void position_embedding_backward(const float* grad_out, float* grad_weight, std::int64_t batch,
                                 std::int64_t time, std::int64_t positions, std::int64_t channels,
                                 Store store);

/// out = x / sqrt(mean(x^2) + epsilon) * weight over the last extent; rstd[rows].
void rms_norm(const float* x, const float* weight, float* out, float* rstd, std::int64_t rows,
              std::int64_t channels, float epsilon);
void rms_norm_backward(const float* grad_out, const float* x, const float* weight,
                       const float* rstd, float* grad_x, float* grad_weight, std::int64_t rows,
                       std::int64_t channels, Store store_x, Store store_weight);

/// out = (x - mean) / sqrt(var + epsilon) * weight + bias; mean[rows], rstd[rows].
void layer_norm(const float* x, const float* weight, const float* bias, float* out, float* mean,
                float* rstd, std::int64_t rows, std::int64_t channels, float epsilon);
void layer_norm_backward(const float* grad_out, const float* x, const float* weight,
                         const float* mean, const float* rstd, float* grad_x, float* grad_weight,
                         float* grad_bias, std::int64_t rows, std::int64_t channels, Store store_x,
                         Store store_weight, Store store_bias);

/// Layout of a linear layer's weight.
enum class WeightLayout { OutIn, InOut };  // torch.nn.Linear; GPT-2's Conv1D

struct LinearShape {
  std::int64_t rows;
  std::int64_t in_features;
  std::int64_t out_features;
  WeightLayout layout;
};
/// out[rows, out_features] = x W^T + bias; `bias` may be null.
void linear(Gemm gemm, const float* x, const float* weight, const float* bias, float* out,
            const LinearShape& shape);
void linear_backward_input(Gemm gemm, const float* grad_out, const float* weight, float* grad_x,
                           const LinearShape& shape, Store store);
void linear_backward_weight(Gemm gemm, const float* grad_out, const float* x, float* grad_weight,
                            const LinearShape& shape, Store store);
void linear_backward_bias(const float* grad_out, float* grad_bias, const LinearShape& shape,
                          Store store);

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
/// Rotates the two halves of each head (not interleaved); x and out may be the same. Angles are
/// made in single precision, as transformers does.
void rope(const float* x, float* out, const RopeShape& shape, RopeDirection direction);

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
  std::int64_t block_rows;        // query rows handled at once
};
/// Floats of scratch that a tile of `block_rows` queries against all keys before its end needs: the
/// largest rows x keys of any tile. Backward needs twice as many.
std::int64_t attention_tile_elems(std::int64_t time, std::int64_t block_rows);

/// Causal attention. out[batch, time, heads, head_dim]; lse[batch, heads, time] = log of the sum of
/// exponentials; `workspace` has attention_tile_elems floats (backward twice that), all of them
/// written.
void attention(Gemm gemm, const float* q, const float* k, const float* v, float* out, float* lse,
               float* workspace, const AttentionShape& shape);
void attention_backward(Gemm gemm, const float* grad_out, const float* q, const float* k,
                        const float* v, const float* out, const float* lse, float* grad_q,
                        float* grad_k, float* grad_v, float* workspace,
                        const AttentionShape& shape);

/// out = silu(gate) * up.
void swiglu(const float* gate, const float* up, float* out, std::int64_t elems);
void swiglu_backward(const float* grad_out, const float* gate, const float* up, float* grad_gate,
                     float* grad_up, std::int64_t elems);

enum class GeluKind { Erf, Tanh };
void gelu(const float* x, float* out, std::int64_t elems, GeluKind kind);
void gelu_backward(const float* grad_out, const float* x, float* grad_x, std::int64_t elems,
                   GeluKind kind);

/// out = a + b; out may be either.
void add(const float* a, const float* b, float* out, std::int64_t elems);
using FloatTensor = std::variant<const float*, const BFloat16*>;
using MutableFloatTensor = std::variant<float*, BFloat16*>;
/// The same for tensors of different dtypes: added in single precision, rounded once.
void add(const FloatTensor& a, const FloatTensor& b, const MutableFloatTensor& out,
         std::int64_t elems);

/// out = x * factor; x and out may be the same.
void scale(const float* x, float factor, float* out, std::int64_t elems);

void widen(const BFloat16* x, float* out, std::int64_t elems);
void narrow(const float* x, BFloat16* out, std::int64_t elems);

/// Logits [rows, vocab] of the rows from `first` on, of `all` rows.
struct LogitsShape {
  std::int64_t rows;
  std::int64_t vocab;
  std::int64_t first;
  std::int64_t all;
};
/// loss = scale * sum over the rows of -log softmax(logits)[target] / counted targets of all rows,
/// so that the chunks of a batch add up to its mean. `targets` are those of all rows; those of
/// kIgnoredTarget are not counted, and without any other the loss is NaN and the gradient 0, as in
/// PyTorch. grad_logits = gradient of the loss; it may be `logits` itself. Throws InputError for a
/// target outside [0, vocab).
void cross_entropy(const float* logits, const std::int32_t* targets, double* loss,
                   float* grad_logits, const LogitsShape& shape, double scale, Store store_loss);

/// Sum of squares, accumulated in double precision in a fixed order.
double sum_squares(const float* x, std::int64_t elems);

struct AdamStep {
  // In double precision: 1 - beta2 would lose half its digits in single.
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1;                        // 1 - beta1^t
  double bias_correction2;                        // 1 - beta2^t
  enum class Decay { Decoupled, Coupled } decay;  // AdamW; Adam with L2
};
/// Every gradient is first multiplied by `grad_scale` (the clip coefficient).
void adam(const float* grad, float grad_scale, float* parameter, float* exp_avg, float* exp_avg_sq,
          std::int64_t elems, const AdamStep& step);

struct SgdStep {
  double lr, momentum, weight_decay;
};
/// buffer = momentum * buffer + grad; parameter -= lr * buffer. `momentum_buffer` may be null.
void sgd(const float* grad, float grad_scale, float* parameter, float* momentum_buffer,
         std::int64_t elems, const SgdStep& step);

/// out += x * scale, element by element; the sums of collectives.
void accumulate(const float* x, float scale, float* out, std::int64_t elems);

}  // namespace shardplan::cpu
