// The part of the CUDA runtime that shardplan uses, over host memory: kernels are compiled for the
// CPU and run on fibers. Names and meanings are those of CUDA's own header. For tests only.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block runs at a time.
#define __shared__ static

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  constexpr dim3() = default;
  constexpr explicit dim3(unsigned in_x, unsigned in_y = 1, unsigned in_z = 1)
      : x(in_x), y(in_y), z(in_z) {}
};
// Of the thread that runs.
extern dim3 threadIdx;
extern dim3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorAssert = 710,  // what a check of the fake has found; its text says what
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };

enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };

namespace fake_cuda {
struct Stream;
struct Event;
struct GraphHandle;
struct GraphExec;
}  // namespace fake_cuda
using cudaStream_t = fake_cuda::Stream*;
using cudaEvent_t = fake_cuda::Event*;
using cudaGraph_t = fake_cuda::GraphHandle*;
using cudaGraphExec_t = fake_cuda::GraphExec*;
using cudaHostFn_t = void (*)(void*);

extern "C" {
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
const char* cudaGetErrorString(cudaError_t error);
}

// ---- kernels ----
namespace fake_cuda {

/// A thread of the block that runs on this host thread.
struct Lane {
  dim3 thread;
  int index = 0;
  int slots = 0;  // which of two sets of slots the last exchange of its warp used
};
extern Lane* lane;

void block_barrier();
void warp_barrier(unsigned mask);

constexpr int kWarp = 32;
using Slots = std::array<std::uint64_t, kWarp>;
/// Gives this lane's value to its warp and waits for those of `mask`; their values, by lane.
const Slots& exchange(unsigned mask, std::uint64_t value);

template <typename T>
T shuffled(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t raw = 0;
  std::memcpy(&raw, &value, sizeof(T));
  const std::uint64_t other = exchange(mask, raw)[static_cast<std::size_t>(source)];
  std::memcpy(&value, &other, sizeof(T));
  return value;
}

/// Bytes that an operation reads or writes.
struct Access {
  std::span<const std::byte> bytes;
  bool writes = false;
};

template <typename T>
concept Tensor = requires(const T& tensor) {
  tensor.bytes();
};
template <typename T>
void collect(std::vector<Access>&, const T&) {
  static_assert(!std::is_pointer_v<T>, "how far a bare pointer reaches cannot be told");
}
template <typename T>
void collect(std::vector<Access>& accesses, const std::span<T>& span) {
  accesses.push_back({std::as_bytes(span), !std::is_const_v<T>});
}
template <Tensor T>
void collect(std::vector<Access>& accesses, const T& tensor) {
  const auto bytes = tensor.bytes();
  accesses.push_back({bytes, !std::is_const_v<typename decltype(bytes)::element_type>});
}

/// Runs `thread` for every thread of a grid, at most one block at a time.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);
cudaError_t enqueue(cudaStream_t stream, const char* what, const std::vector<Access>& accesses,
                    std::function<void()> work);

}  // namespace fake_cuda

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<std::remove_cv_t<Parameters>...> own(std::forward<Arguments>(arguments)...);
  std::vector<fake_cuda::Access> accesses;
  std::apply([&](const auto&... one) { (fake_cuda::collect(accesses, one), ...); }, own);
  return fake_cuda::enqueue(config->stream, __PRETTY_FUNCTION__, accesses,
                            [kernel, own, grid = config->gridDim, block = config->blockDim] {
                              fake_cuda::run_grid(grid, block, [&] { std::apply(kernel, own); });
                            });
}

inline void __syncthreads() { fake_cuda::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffU) { fake_cuda::warp_barrier(mask); }
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return fake_cuda::shuffled(mask, value, (fake_cuda::lane->index % fake_cuda::kWarp) ^ lanes);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  const fake_cuda::Slots& votes = fake_cuda::exchange(mask, predicate ? 1 : 0);
  unsigned ballot = 0;
  for (unsigned i = 0; i < fake_cuda::kWarp; ++i)
    if ((mask >> i & 1U) != 0 && votes[i] != 0) ballot |= 1U << i;
  return ballot;
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
