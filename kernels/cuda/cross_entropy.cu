#include <cmath>

#include "kernels/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"

namespace shardplan::cuda {
namespace {

/// counted[0] = how many targets of all rows are counted.
__global__ void count_targets_kernel(std::span<const std::int32_t> targets,
                                     std::span<double> counted) {
  double own = 0;
  for (std::size_t row = threadIdx.x; row < targets.size(); row += kBlockThreads)
    own += targets[row] == kIgnoredTarget ? 0 : 1;
  const double sum = block_sum(own);
  if (threadIdx.x == 0) counted[0] = sum;
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
                                     std::span<const double> counted, Floats grad_logits,
                                     std::span<double> losses, LogitsShape shape, double scale) {
  double loss = 0;
  for (std::int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const std::int32_t target = targets[shape.first + row];
    const std::int64_t first = row * shape.vocab;
    if (target == kIgnoredTarget)
      for (std::int64_t i = threadIdx.x; i < shape.vocab; i += kBlockThreads)
        grad_logits.put(first + i, 0);
    else
      loss += row_loss(logits, grad_logits, first, shape.vocab, target, scale / counted[0]);
  }
  if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

__global__ void add_losses_kernel(std::span<const double> losses, std::span<const double> counted,
                                  std::span<double> loss, double scale, bool accumulate) {
  const double sum = sum_of_partials(losses);
  if (threadIdx.x == 0) loss[0] = (accumulate ? loss[0] : 0.0) + scale * (sum / counted[0]);
}

}  // namespace

void cross_entropy(ConstFloats logits, std::span<const std::int32_t> targets,
                   std::span<double> loss, Floats grad_logits, std::span<double> partials,
                   const LogitsShape& shape, double scale, Store store_loss, cudaStream_t stream) {
  const std::span<double> counted = partials.first(1);
  const std::span<double> losses = partials.subspan(1);
  const std::int64_t blocks = std::min(shape.rows, static_cast<std::int64_t>(losses.size()));
  const std::span<double> used = losses.first(static_cast<std::size_t>(blocks));
  launch(count_targets_kernel, dim3(1), kBlockThreads, stream, targets, counted);
  launch(cross_entropy_kernel, dim3(static_cast<unsigned>(blocks)), kBlockThreads, stream, logits,
         targets, counted, grad_logits, used, shape, scale);
  launch(add_losses_kernel, dim3(1), kBlockThreads, stream, used, counted, loss, scale,
         store_loss == Store::Accumulate);
}

}  // namespace shardplan::cuda
