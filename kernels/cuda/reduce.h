#pragma once

#include "kernels/cuda/launch.h"

namespace shardplan::cuda {

constexpr unsigned kAllLanes = 0xffffffffU;

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / kWarp; }

/// The sum over a warp, on all of its lanes, in an order that nothing but the lanes decides.
template <typename T>
__device__ T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

__device__ inline float warp_max(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

/// The sum over a block of kBlockThreads threads, on all of them.
template <typename T>
__device__ T block_sum(T value) {
  __shared__ T partial[kBlockThreads / kWarp];
  value = warp_sum(value);
  __syncthreads();  // the last call's readers are done
  if (lane_of_warp() == 0) partial[warp_of_block()] = value;
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < kBlockThreads / kWarp; ++warp)
    sum += partial[warp];
  return sum;
}

__device__ inline float block_max(float value) {
  __shared__ float partial[kBlockThreads / kWarp];
  value = warp_max(value);
  __syncthreads();
  if (lane_of_warp() == 0) partial[warp_of_block()] = value;
  __syncthreads();
  float largest = partial[0];
  for (int warp = 1; warp < kBlockThreads / kWarp; ++warp)
    largest = fmaxf(largest, partial[warp]);
  return largest;
}

/// The sum of what the blocks of an earlier kernel found, on all threads of this one's only block.
__device__ inline double sum_of_partials(std::span<const double> partials) {
  double own = 0;
  for (std::size_t i = threadIdx.x; i < partials.size(); i += kBlockThreads)
    own += partials[i];
  return block_sum(own);
}

/// The first of `partials`, one for each block that shares `work` items; at least one.
inline std::span<double> partials_for(std::int64_t work, std::span<double> partials) {
  constexpr std::int64_t kItemsPerThread = 16;
  return partials.first(static_cast<std::size_t>(std::clamp<std::int64_t>(
      work / (kBlockThreads * kItemsPerThread), 1, static_cast<std::int64_t>(partials.size()))));
}

}  // namespace shardplan::cuda
