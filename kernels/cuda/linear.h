#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "kernels/cuda/floats.h"
#include "kernels/shapes.h"

namespace shardplan::cuda {

/// Row-major matrix in device memory, of float32 or bfloat16.
struct Matrix {
  void* data;
  bool narrow;          // bfloat16
  std::int64_t stride;  // elements
  bool transposed = false;
};

/// Products of matrices by cuBLASLt, in float32 with results rounded once; TF32 is not used. One
/// thread and stream at a time. Algorithms are chosen once a shape.
class Products {
 public:
  /// `workspace`: device memory that algorithms may use, of the stream that they run on. Throws
  /// SystemError when cuBLASLt does not start.
  explicit Products(std::span<std::byte> workspace);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// out[m, n] = op(a)[m, k] op(b)[k, n] (+ out) (+ bias[n] on every row). `bias` may be null; its
  /// dtype is that of `out`. Throws SystemError when cuBLASLt has no algorithm within the
  /// workspace.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b,
                const Matrix& out, Store store, const void* bias, cudaStream_t stream);

 private:
  struct Prepared;
  /// Sizes, strides, dtypes, transposes, alignments: what an algorithm is chosen by.
  using Key = std::array<std::int64_t, 15>;

  Prepared& prepared(const Key& key);

  const std::span<std::byte> workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

/// The twins of the linear layers in kernels/kernels.h.
void linear(Products& products, ConstFloats x, ConstFloats weight, ConstFloats bias, Floats out,
            const LinearShape& shape, cudaStream_t stream);
void linear_backward_input(Products& products, ConstFloats grad_out, ConstFloats weight,
                           Floats grad_x, const LinearShape& shape, Store store,
                           cudaStream_t stream);
void linear_backward_weight(Products& products, ConstFloats grad_out, ConstFloats x,
                            Floats grad_weight, const LinearShape& shape, Store store,
                            cudaStream_t stream);

}  // namespace shardplan::cuda
