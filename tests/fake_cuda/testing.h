#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/floats.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace fake_cuda::testing {

/// A stream of device 0.
class TestStream {
 public:
  TestStream() {
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&end_, cudaEventDisableTiming);
  }
  ~TestStream() {
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)

  /// Until all that was put there is done, or something has failed.
  cudaError_t finish() const {
    cudaError_t status = cudaEventRecord(end_, stream_);
    while (status == cudaSuccess || status == cudaErrorNotReady) {
      status = cudaEventQuery(end_);
      if (status == cudaSuccess) return cudaSuccess;
    }
    return status;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// `elems` elements of memory that the device and this program can read and write; NaNs at first.
template <typename T>
class Memory {
 public:
  /// The first element lies `shift` elements after what 256 divides.
  explicit Memory(std::int64_t elems, std::int64_t shift = 0)
      : elems_(static_cast<std::size_t>(elems)), shift_(static_cast<std::size_t>(shift)) {
    const std::size_t bytes = (elems_ + shift_) * sizeof(T);
    if (const cudaError_t status = cudaMallocManaged(&memory_, bytes); status != cudaSuccess)
      throw std::runtime_error(cudaGetErrorString(status));
    std::memset(memory_, 0xff, bytes);
  }
  ~Memory() { cudaFree(memory_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<T> span() const { return {static_cast<T*>(memory_) + shift_, elems_}; }

 private:
  const std::size_t elems_;
  const std::size_t shift_;
  void* memory_ = nullptr;
};

/// What a kernel works on: the same values for it and for its twin on the CPU.
class TestTensor {
 public:
  TestTensor(std::int64_t elems, bool narrow, std::int64_t shift)
      : values(static_cast<std::size_t>(elems), std::nanf("")),
        narrow_(narrow),
        bytes_(elems * (narrow ? 2 : 4), shift * (narrow ? 2 : 4)) {}

  /// Fills both with random numbers.
  void randomize(std::mt19937& random, float scale = 1) {
    for (float& value : values) {
      value = (static_cast<float>(random() % 20001) / 10000.0F - 1) * scale;
      if (narrow_) value = shardplan::widened(shardplan::rounded(value));
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      narrow_ ? void(narrow()[i] = shardplan::rounded(values[i])) : void(wide()[i] = values[i]);
  }

  shardplan::cuda::ConstFloats in() const {
    const auto elems = static_cast<std::int64_t>(values.size());
    return narrow_ ? shardplan::cuda::ConstFloats(narrow(), elems)
                   : shardplan::cuda::ConstFloats(wide(), elems);
  }
  shardplan::cuda::Floats out() const {
    const auto elems = static_cast<std::int64_t>(values.size());
    return narrow_ ? shardplan::cuda::Floats(narrow(), elems)
                   : shardplan::cuda::Floats(wide(), elems);
  }
  float* twin() { return values.data(); }

  /// What the kernel left differs from what the twin did by at most `tolerance` of the largest
  /// value, or of `least` where values are what is left of larger ones, and where it is rounded by
  /// a half of its last place more.
  void expect_same(const char* what, float tolerance = 2e-6F, float least = 0) const {
    constexpr float kHalfPlace = 1.0F / 256;  // of bfloat16
    float largest = least;
    for (const float value : values)
      largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float got = narrow_ ? shardplan::widened(narrow()[i]) : wide()[i];
      const float allowed =
          tolerance * largest + (narrow_ ? kHalfPlace * std::abs(values[i]) : 0.0F);
      ASSERT_NEAR(got, values[i], allowed) << what << ", element " << i;
    }
  }

  /// What the kernel left, where it is bfloat16.
  float rounded_at(std::size_t i) const { return shardplan::widened(narrow()[i]); }

  std::vector<float> values;  // the twin's

 private:
  float* wide() const { return reinterpret_cast<float*>(bytes_.span().data()); }
  shardplan::BFloat16* narrow() const {
    return reinterpret_cast<shardplan::BFloat16*>(bytes_.span().data());
  }

  const bool narrow_;
  Memory<std::byte> bytes_;
};

}  // namespace fake_cuda::testing
