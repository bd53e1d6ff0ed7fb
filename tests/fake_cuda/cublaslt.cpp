#include <cublasLt.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "tests/fake_cuda/machine.h"

namespace fake_cuda {

struct Blas {
  int device = 0;
};
struct MatmulDesc {
  cublasOperation_t a = CUBLAS_OP_N;
  cublasOperation_t b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
/// Column-major, as everywhere in cuBLAS.
struct MatrixLayout {
  cudaDataType_t type;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;

  std::size_t element_bytes() const { return type == CUDA_R_16BF ? 2 : 4; }
  std::size_t bytes() const {
    return static_cast<std::size_t>((columns - 1) * stride + rows) * element_bytes();
  }
};
struct MatmulPreference {
  std::size_t workspace_bytes = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

using shardplan::BFloat16;
namespace cpu = shardplan::cpu;

/// A matrix in float32, widened where it is not.
class Wide {
 public:
  Wide(const void* data, const MatrixLayout& layout) : data_(static_cast<const float*>(data)) {
    if (layout.type == CUDA_R_32F) return;
    const std::size_t elems = layout.bytes() / layout.element_bytes();
    copy_.resize(elems);
    for (std::size_t i = 0; i < elems; ++i)
      copy_[i] = shardplan::widened(static_cast<const BFloat16*>(data)[i]);
    data_ = copy_.data();
  }
  const float* data() const { return data_; }

 private:
  const float* data_;
  std::vector<float> copy_;
};

float element(const void* data, cudaDataType_t type, std::int64_t i) {
  return type == CUDA_R_32F ? static_cast<const float*>(data)[i]
                            : shardplan::widened(static_cast<const BFloat16*>(data)[i]);
}

/// d = op(a) op(b) + beta c + bias, in float32, rounded once.
struct Product {
  MatmulDesc desc;
  MatrixLayout a_layout, b_layout, d_layout;
  const void* a;
  const void* b;
  const void* c;
  void* d;
  float beta;

  void run() const {
    const std::int64_t m = d_layout.rows;
    const std::int64_t n = d_layout.columns;
    const std::int64_t k = desc.a == CUBLAS_OP_N ? a_layout.columns : a_layout.rows;
    const Wide left(a, a_layout);
    const Wide right(b, b_layout);
    std::vector<float> product(static_cast<std::size_t>(m * n));
    // A column-major matrix is a transposed row-major one: d^T = op(b)^T op(a)^T.
    cpu::gemm_onednn(n, m, k, 1.0F, {right.data(), b_layout.stride, transposed(desc.b)},
                     {left.data(), a_layout.stride, transposed(desc.a)}, 0.0F, product.data(), m);
    for (std::int64_t column = 0; column < n; ++column)
      for (std::int64_t row = 0; row < m; ++row) {
        const std::int64_t at = column * d_layout.stride + row;
        float value = product[static_cast<std::size_t>(column * m + row)];
        if (beta != 0.0F) value += beta * element(c, d_layout.type, at);
        if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
          value += element(desc.bias, d_layout.type, row);
        store(at, value);
      }
  }

 private:
  static cpu::Transpose transposed(cublasOperation_t operation) {
    return operation == CUBLAS_OP_T ? cpu::Transpose::Yes : cpu::Transpose::No;
  }
  void store(std::int64_t at, float value) const {
    if (d_layout.type == CUDA_R_32F)
      static_cast<float*>(d)[at] = value;
    else
      static_cast<BFloat16*>(d)[at] = shardplan::rounded(value);
  }
};

/// What cuBLASLt would refuse, too.
bool fits(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b,
          const MatrixLayout& d) {
  const bool plain_a = desc.a == CUBLAS_OP_N;
  const bool plain_b = desc.b == CUBLAS_OP_N;
  return (plain_a ? a.rows : a.columns) == d.rows && (plain_b ? b.columns : b.rows) == d.columns &&
         (plain_a ? a.columns : a.rows) == (plain_b ? b.rows : b.columns) && a.stride >= a.rows &&
         b.stride >= b.rows && d.stride >= d.rows && a.type == b.type;
}

std::vector<Access> accesses_of(const Product& p) {
  const auto bytes = [](const void* data, std::size_t size) {
    return std::span(static_cast<const std::byte*>(data), size);
  };
  std::vector<Access> accesses{{bytes(p.a, p.a_layout.bytes()), false},
                               {bytes(p.b, p.b_layout.bytes()), false},
                               {bytes(p.d, p.d_layout.bytes()), true}};
  if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
    accesses.push_back(
        {bytes(p.desc.bias, static_cast<std::size_t>(p.d_layout.rows) * p.d_layout.element_bytes()),
         false});
  return accesses;
}

bool is_aligned(const void* address, std::uint32_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

template <typename T>
cublasStatus_t set(T& field, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return cudaGetErrorString(cudaErrorAssert);
    case CUBLAS_STATUS_NOT_SUPPORTED: break;
  }
  return "CUBLAS_STATUS_NOT_SUPPORTED";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new Blas{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                        cudaDataType_t) {
  *desc = new MatmulDesc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(desc->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(desc->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(desc->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
  *layout = new MatrixLayout{type, static_cast<std::int64_t>(rows),
                             static_cast<std::int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new MatmulPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return set(preference->workspace_bytes, value, bytes);
  return set(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
             bytes);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  *returned = fits(*desc, *a, *b, *d) ? 1 : 0;
  // Holds it to the alignment that was promised, and to all of the workspace.
  results[0] = {{{preference->alignment[0], preference->alignment[1], preference->alignment[3]}},
                preference->workspace_bytes,
                CUBLAS_STATUS_SUCCESS};
  return *returned == 1 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const auto promised = [&](int i) { return static_cast<std::uint32_t>(algo->data[i]); };
  if (*static_cast<const float*>(alpha) != 1.0F || !fits(*desc, *a_layout, *b_layout, *d_layout) ||
      handle->device != current_device() || !is_aligned(a, promised(0)) ||
      !is_aligned(b, promised(1)) || !is_aligned(d, promised(2)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{
      *desc, *a_layout, *b_layout, *d_layout, a, b, c, d, *static_cast<const float*>(beta)};
  std::vector<Access> accesses = accesses_of(product);
  accesses.push_back({{static_cast<std::byte*>(workspace), workspace_bytes}, true});
  return enqueue(stream, "matrix product", accesses, [product] { product.run(); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
