#pragma once

#include <cstdint>
#include <variant>

#include "kernels/bfloat16.h"
#include "kernels/gemm.h"
#include "kernels/shapes.h"
#include "plans/units.h"

/// Every launcher, in single precision. All tensors are dense and row-major; see shapes.h for the
/// names of their extents.
namespace shardplan::cpu {

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

/// out[rows, out_features] = x W^T + bias; `bias` may be null.
void linear(Gemm gemm, const float* x, const float* weight, const float* bias, float* out,
            const LinearShape& shape);
void linear_backward_input(Gemm gemm, const float* grad_out, const float* weight, float* grad_x,
                           const LinearShape& shape, Store store);
void linear_backward_weight(Gemm gemm, const float* grad_out, const float* x, float* grad_weight,
                            const LinearShape& shape, Store store);
void linear_backward_bias(const float* grad_out, float* grad_bias, const LinearShape& shape,
                          Store store);

/// Rotates the two halves of each head (not interleaved); x and out may be the same. Angles are
/// made in single precision, as transformers does.
void rope(const float* x, float* out, const RopeShape& shape, RopeDirection direction);

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

/// loss = scale * sum over the rows of -log softmax(logits)[target] / counted targets of all rows,
/// so that the chunks of a batch add up to its mean. `targets` are those of all rows; those of
/// kIgnoredTarget are not counted, and without any other the loss is NaN and the gradient 0, as in
/// PyTorch. grad_logits = gradient of the loss; it may be `logits` itself. Throws InputError for a
/// target outside [0, vocab).
void cross_entropy(const float* logits, const std::int32_t* targets, double* loss,
                   float* grad_logits, const LogitsShape& shape, double scale, Store store_loss);

/// Sum of squares, accumulated in double precision in a fixed order.
double sum_squares(const float* x, std::int64_t elems);

/// Every gradient is first multiplied by `grad_scale` (the clip coefficient).
void adam(const float* grad, float grad_scale, float* parameter, float* exp_avg, float* exp_avg_sq,
          std::int64_t elems, const AdamStep& step);

/// buffer = momentum * buffer + grad; parameter -= lr * buffer. `momentum_buffer` may be null.
void sgd(const float* grad, float grad_scale, float* parameter, float* momentum_buffer,
         std::int64_t elems, const SgdStep& step);

/// out += x * scale, element by element; the sums of collectives.
void accumulate(const float* x, float scale, float* out, std::int64_t elems);

}  // namespace shardplan::cpu
