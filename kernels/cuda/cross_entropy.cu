#include <cmath>

#include "kernels/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"

namespace shardplan::cuda {
namespace {

/// How many targets of all rows are counted; on all threads of a block.
__device__ double counted_targets(std::span<const std::int32_t> targets) {
  double own = 0;
  for (std::size_t row = threadIdx.x; row < targets.size(); row += kBlockThreads)
    own += targets[row] == kIgnoredTarget ? 0 : 1;
  return block_sum(own);
}

/// -log softmax(logits)[target] of one row; gradient = (softmax - one-hot) * scale, over the logits
/// where they are the same. On all threads of the block that works on it.
__device__ double row_loss(const ConstFloats& logits, const Floats& gradient, std::int64_t first,
                           std::int64_t vocab, std::int32_t target, double scale) {
  float own_largest = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < vocab; i += kBlockThreads)
    own_largest = fmaxf(own_largest, logits[first + i]);
  const float largest = block_max(own_largest);
  double own_sum = 0;
  for (std::int64_t i = threadIdx.x; i < vocab; i += kBlockThreads)
    own_sum += exponential(logits[first + i] - largest);
  const double sum = block_sum(own_sum);
  const float target_logit = logits[first + target];
  __syncthreads();  // before its place gets the gradient
  const auto factor = static_cast<float>(scale / sum);
  for (std::int64_t i = threadIdx.x; i < vocab; i += kBlockThreads) {
    const float power = exponential(logits[first + i] - largest);
    gradient.put(first + i,
                 i == target ? static_cast<float>((power / sum - 1) * scale) : power * factor);
  }
  return log(sum) + (static_cast<double>(largest) - target_logit);
}

/// Every block takes every gridDim.x-th row; losses[block] = the sum of theirs.
__global__ void cross_entropy_kernel(ConstFloats logits, std::span<const std::int32_t> targets,
                                     Floats grad_logits, std::span<double> losses,
                                     LogitsShape shape, double scale) {
  const double counted = counted_targets(targets);
  double loss = 0;
  for (std::int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const std::int32_t target = targets[shape.first + row];
    const std::int64_t first = row * shape.vocab;
    if (target == kIgnoredTarget)
      for (std::int64_t i = threadIdx.x; i < shape.vocab; i += kBlockThreads)
        grad_logits.put(first + i, 0);
    else
      loss += row_loss(logits, grad_logits, first, shape.vocab, target, scale / counted);
  }
  if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

__global__ void add_losses_kernel(std::span<const double> losses,
                                  std::span<const std::int32_t> targets, std::span<double> loss,
                                  double scale, bool accumulate) {
  const double counted = counted_targets(targets);
  double own = 0;
  for (std::size_t i = threadIdx.x; i < losses.size(); i += kBlockThreads)
    own += losses[i];
  const double sum = block_sum(own);
  if (threadIdx.x == 0) loss[0] = (accumulate ? loss[0] : 0.0) + scale * (sum / counted);
}

}  // namespace

void cross_entropy(ConstFloats logits, std::span<const std::int32_t> targets,
                   std::span<double> loss, Floats grad_logits, std::span<double> partials,
                   const LogitsShape& shape, double scale, Store store_loss, cudaStream_t stream) {
  const std::int64_t blocks = std::min(shape.rows, static_cast<std::int64_t>(partials.size()));
  const std::span<double> used = partials.first(static_cast<std::size_t>(blocks));
  launch(cross_entropy_kernel, dim3(static_cast<unsigned>(blocks)), kBlockThreads, stream, logits,
         targets, grad_logits, used, shape, scale);
  launch(add_losses_kernel, dim3(1), kBlockThreads, stream, used, targets, loss, scale,
         store_loss == Store::Accumulate);
}

}  // namespace shardplan::cuda
