#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <utility>

#include "kernels/cuda/check.h"
#include "plans/units.h"

namespace shardplan::cuda {

/// A handle of the CUDA runtime that is destroyed with it, on the device that it was made on.
template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) kDestroy(handle_);
  }

  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using StreamHandle = Owned<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Owned<cudaEvent_t, cudaEventDestroy>;

inline StreamHandle make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  return StreamHandle(stream);
}
inline EventHandle make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  return EventHandle(event);
}

/// Memory of the current device, or with cudaMallocHost pinned memory of the host.
template <cudaError_t (*kAllocate)(void**, std::size_t), cudaError_t (*kFree)(void*)>
class Memory {
 public:
  Memory() = default;
  /// Throws SystemError when there is not enough.
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    check(kAllocate(&memory, bytes),
          ("allocate " + format_bytes(static_cast<Bytes>(bytes))).c_str());
    memory_ = Owned<void*, kFree>(memory);
  }

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_.get()), bytes_}; }

 private:
  std::size_t bytes_ = 0;
  Owned<void*, kFree> memory_;
};

inline cudaError_t allocate_device(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes);
}
inline cudaError_t allocate_pinned(void** memory, std::size_t bytes) {
  return cudaMallocHost(memory, bytes);
}
using DeviceMemory = Memory<allocate_device, cudaFree>;
using PinnedMemory = Memory<allocate_pinned, cudaFreeHost>;

}  // namespace shardplan::cuda
