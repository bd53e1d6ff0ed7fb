#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/check.h"
#include "kernels/cuda/floats.h"

namespace shardplan::cuda {

constexpr int kWarp = 32;
constexpr int kBlockThreads = 256;  // of kernels that do not say otherwise

/// Threads that handle `work` items, one each.
inline dim3 blocks_for(std::int64_t work, int threads = kBlockThreads) {
  return dim3(static_cast<unsigned>((work + threads - 1) / threads));
}

/// Launches a kernel; nothing for an empty grid. What kernels are given in device memory comes as
/// spans or tensors, whose bytes can be told.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
            const Arguments&... arguments) {
  if (grid.x == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "launch a kernel");
}

/// Launches a kernel that calls for_each_pack() on `elems` elements.
template <typename... Parameters, typename... Arguments>
void launch_packs(void (*kernel)(Parameters...), std::int64_t elems, cudaStream_t stream,
                  const Arguments&... arguments) {
  launch(kernel, blocks_for((elems + kPackElems - 1) / kPackElems), kBlockThreads, stream,
         arguments...);
}

/// This thread's place in a grid of one extent.
__device__ inline std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/// Calls body(pack) for this thread's elements of [0, elems).
template <typename Body>
__device__ void for_each_pack(std::int64_t elems, Body body) {
  const std::int64_t first = thread_of_grid() * kPackElems;
  if (first < elems)
    body(Pack{first, static_cast<int>(elems - first < kPackElems ? elems - first : kPackElems)});
}

}  // namespace shardplan::cuda
