#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "kernels/arithmetic.h"
#include "kernels/cuda/floats.h"
#include "kernels/shapes.h"

/// Every launcher but those of matrix products: the twins of kernels/kernels.h. Tensors are of
/// float32 or bfloat16; what is computed is so in float32, sums over many elements in float64, and
/// results are rounded once. Throws SystemError when the device refuses a launch.
namespace shardplan::cuda {

/// Doubles of scratch memory that kernels which sum over all rows or elements need: `partials`.
constexpr std::int64_t kPartials = 1024;

/// Tokens must be in [0, vocab): a run's are checked where they are read.
void embedding(std::span<const std::int32_t> tokens, ConstFloats weight, Floats out,
               std::int64_t channels, cudaStream_t stream);
void embedding_backward(ConstFloats grad_out, std::span<const std::int32_t> tokens,
                        Floats grad_weight, std::int64_t channels, Store store,
                        cudaStream_t stream);
/// out = x + weight[time], `sequence` = time x channels.
void position_embedding(ConstFloats x, ConstFloats weight, Floats out, std::int64_t sequence,
                        cudaStream_t stream);
void position_embedding_backward(ConstFloats grad_out, Floats grad_weight, std::int64_t sequence,
                                 Store store, cudaStream_t stream);

void rms_norm(ConstFloats x, ConstFloats weight, Floats out, Floats rstd, std::int64_t channels,
              float epsilon, cudaStream_t stream);
void rms_norm_backward(ConstFloats grad_out, ConstFloats x, ConstFloats weight, ConstFloats rstd,
                       Floats grad_x, Floats grad_weight, Store store_x, Store store_weight,
                       cudaStream_t stream);
void layer_norm(ConstFloats x, ConstFloats weight, ConstFloats bias, Floats out, Floats mean,
                Floats rstd, std::int64_t channels, float epsilon, cudaStream_t stream);
void layer_norm_backward(ConstFloats grad_out, ConstFloats x, ConstFloats weight, ConstFloats mean,
                         ConstFloats rstd, Floats grad_x, Floats grad_weight, Floats grad_bias,
                         Store store_x, Store store_weight, Store store_bias, cudaStream_t stream);
/// out[columns] = sum over the rows of x[rows, columns].
void sum_rows(ConstFloats x, Floats out, Store store, cudaStream_t stream);

void rope(ConstFloats x, Floats out, const RopeShape& shape, RopeDirection direction,
          cudaStream_t stream);

/// Largest head that the kernels of attention take.
constexpr std::int64_t kMostHeadDim = 256;
void attention(ConstFloats q, ConstFloats k, ConstFloats v, Floats out, Floats lse,
               const AttentionShape& shape, cudaStream_t stream);
/// `row_dots` has a float32 per query row and head.
void attention_backward(ConstFloats grad_out, ConstFloats q, ConstFloats k, ConstFloats v,
                        ConstFloats out, ConstFloats lse, Floats grad_q, Floats grad_k,
                        Floats grad_v, std::span<float> row_dots, const AttentionShape& shape,
                        cudaStream_t stream);

void swiglu(ConstFloats gate, ConstFloats up, Floats out, cudaStream_t stream);
void swiglu_backward(ConstFloats grad_out, ConstFloats gate, ConstFloats up, Floats grad_gate,
                     Floats grad_up, cudaStream_t stream);
void gelu(ConstFloats x, Floats out, GeluKind kind, cudaStream_t stream);
void gelu_backward(ConstFloats grad_out, ConstFloats x, Floats grad_x, GeluKind kind,
                   cudaStream_t stream);
void add(ConstFloats a, ConstFloats b, Floats out, cudaStream_t stream);
void scale(ConstFloats x, float factor, Floats out, cudaStream_t stream);
void scale(std::span<const double> x, double factor, std::span<double> out, cudaStream_t stream);
/// out = x, rounded where it must be.
void convert(ConstFloats x, Floats out, cudaStream_t stream);

/// Targets are those of all rows, and must be in [0, vocab) or kIgnoredTarget.
void cross_entropy(ConstFloats logits, std::span<const std::int32_t> targets,
                   std::span<double> loss, Floats grad_logits, std::span<double> partials,
                   const LogitsShape& shape, double scale, Store store_loss, cudaStream_t stream);

/// sum (+)= squares of x.
void sum_squares(ConstFloats x, std::span<double> sum, std::span<double> partials, Store store,
                 cudaStream_t stream);
void gradient_norm(std::span<const double> sum_squares, float max_norm, Floats norm,
                   Floats coefficient, cudaStream_t stream);

/// `grad_scale` is one number on the device. What changes from step to step is taken from `now`,
/// one on the device too, so that a launch can be repeated; in `step` it does not count.
void adam(ConstFloats grad, ConstFloats grad_scale, Floats parameter, Floats exp_avg,
          Floats exp_avg_sq, const AdamStep& step, std::span<const StepFactors> now,
          cudaStream_t stream);
/// `momentum_buffer` may be empty.
void sgd(ConstFloats grad, ConstFloats grad_scale, Floats parameter, Floats momentum_buffer,
         const SgdStep& step, std::span<const StepFactors> now, cudaStream_t stream);

template <typename T>
void fill(std::span<T> out, T value, cudaStream_t stream);

/// See kernels/pattern.h. `changed` gets the number of bytes in words that are not the pattern's.
void fill_pattern(std::span<std::byte> memory, cudaStream_t stream);
void count_changed(std::span<const std::byte> memory, std::span<std::int64_t> changed,
                   std::span<double> partials, cudaStream_t stream);

}  // namespace shardplan::cuda
