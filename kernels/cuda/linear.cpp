#include "kernels/cuda/linear.h"

#include <fmt/format.h>

#include "plans/error.h"

namespace shardplan::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw SystemError(fmt::format("cuBLASLt cannot {}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t type_of(bool narrow) { return narrow ? CUDA_R_16BF : CUDA_R_32F; }

/// What an address is a multiple of, as far as algorithms ask.
std::uint32_t alignment_of(const void* address) {
  constexpr std::uintptr_t kMost = 256;
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | kMost;
  return static_cast<std::uint32_t>(bits & -bits);
}

/// A handle of cuBLASLt that is destroyed with it.
template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ != nullptr) kDestroy(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle* place() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;

template <typename T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)),
        "describe a product");
}
template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
        "choose an algorithm");
}

/// Where things are in a key.
enum Field {
  M,
  N,
  K,
  AStride,
  BStride,
  OutStride,
  ANarrow,
  BNarrow,
  OutNarrow,
  ATransposed,
  BTransposed,
  HasBias,
  AAlignment,
  BAlignment,
  OutAlignment
};

void create(Layout& layout, bool narrow, std::int64_t rows, std::int64_t columns,
            std::int64_t stride) {
  check(
      cublasLtMatrixLayoutCreate(layout.place(), type_of(narrow), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(columns), stride),
      "describe a matrix");
}

}  // namespace

struct Products::Prepared {
  Description description;
  Layout a;
  Layout b;
  Layout out;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

Products::Products(std::span<std::byte> workspace) : workspace_(workspace) {
  check(cublasLtCreate(&handle_), "start");
}

Products::~Products() {
  prepared_.clear();
  cublasLtDestroy(handle_);
}

// cuBLAS is column-major: it sees every row-major matrix transposed, and makes out^T = op(b)^T
// op(a)^T. So its first operand is b.
Products::Prepared& Products::prepared(const Key& key) {
  std::unique_ptr<Prepared>& known = prepared_[key];
  if (known) return *known;
  auto fresh = std::make_unique<Prepared>();
  const auto transpose = [](std::int64_t is) { return is != 0 ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const auto matrix = [&](Layout& layout, Field narrow, Field transposed, Field stride,
                          std::int64_t rows, std::int64_t columns) {
    const bool is_transposed = key[transposed] != 0;
    create(layout, key[narrow] != 0, is_transposed ? columns : rows, is_transposed ? rows : columns,
           key[stride]);
  };
  check(cublasLtMatmulDescCreate(fresh->description.place(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describe a product");
  set(fresh->description, CUBLASLT_MATMUL_DESC_TRANSA, transpose(key[BTransposed]));
  set(fresh->description, CUBLASLT_MATMUL_DESC_TRANSB, transpose(key[ATransposed]));
  if (key[HasBias] != 0)
    set(fresh->description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  matrix(fresh->b, BNarrow, BTransposed, BStride, key[N], key[K]);
  matrix(fresh->a, ANarrow, ATransposed, AStride, key[K], key[M]);
  create(fresh->out, key[OutNarrow] != 0, key[N], key[M], key[OutStride]);

  Preference preference;
  check(cublasLtMatmulPreferenceCreate(preference.place()), "choose an algorithm");
  const auto alignment = [&](Field field) { return static_cast<std::uint32_t>(key[field]); };
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_.size());
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(BAlignment));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(AAlignment));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(OutAlignment));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(OutAlignment));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, fresh->description.get(), fresh->b.get(), fresh->a.get(), fresh->out.get(),
      fresh->out.get(), preference.get(), 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0)
    throw SystemError(fmt::format(
        "cuBLASLt has no algorithm for a product [{}, {}] x [{}, {}] of {} within {} bytes of "
        "workspace",
        key[M], key[K], key[K], key[N], key[ANarrow] != 0 ? "bfloat16" : "float32",
        workspace_.size()));
  fresh->algorithm = found.algo;
  fresh->workspace_bytes = found.workspaceSize;
  known = std::move(fresh);
  return *known;
}

void Products::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a,
                        const Matrix& b, const Matrix& out, Store store, const void* bias,
                        cudaStream_t stream) {
  Prepared& product =
      prepared({m, n, k, a.stride, b.stride, out.stride, a.narrow, b.narrow, out.narrow,
                a.transposed, b.transposed, bias != nullptr, alignment_of(a.data),
                alignment_of(b.data), alignment_of(out.data)});
  if (bias != nullptr) set(product.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1;
  const float kept = store == Store::Accumulate ? 1 : 0;
  check(cublasLtMatmul(handle_, product.description.get(), &one, b.data, product.b.get(), a.data,
                       product.a.get(), &kept, out.data, product.out.get(), out.data,
                       product.out.get(), &product.algorithm, workspace_.data(),
                       product.workspace_bytes, stream),
        "multiply");
}

namespace {

Matrix matrix(const ConstFloats& x, std::int64_t stride, bool transposed = false) {
  return {const_cast<std::byte*>(x.bytes().data()), x.is_narrow(), stride, transposed};
}
Matrix matrix(const Floats& x, std::int64_t stride) {
  return {x.bytes().data(), x.is_narrow(), stride};
}

/// The weight as the matrix [in_features, out_features].
Matrix weight_in_out(const ConstFloats& weight, const LinearShape& shape) {
  if (shape.layout == WeightLayout::InOut) return matrix(weight, shape.out_features);
  return matrix(weight, shape.in_features, true);
}

/// The weight as the matrix [out_features, in_features].
Matrix weight_out_in(const ConstFloats& weight, const LinearShape& shape) {
  if (shape.layout == WeightLayout::OutIn) return matrix(weight, shape.in_features);
  return matrix(weight, shape.out_features, true);
}

}  // namespace

void linear(Products& products, ConstFloats x, ConstFloats weight, ConstFloats bias, Floats out,
            const LinearShape& shape, cudaStream_t stream) {
  products.multiply(shape.rows, shape.out_features, shape.in_features, matrix(x, shape.in_features),
                    weight_in_out(weight, shape), matrix(out, shape.out_features), Store::Overwrite,
                    bias.size() > 0 ? bias.bytes().data() : nullptr, stream);
}

void linear_backward_input(Products& products, ConstFloats grad_out, ConstFloats weight,
                           Floats grad_x, const LinearShape& shape, Store store,
                           cudaStream_t stream) {
  products.multiply(shape.rows, shape.in_features, shape.out_features,
                    matrix(grad_out, shape.out_features), weight_out_in(weight, shape),
                    matrix(grad_x, shape.in_features), store, nullptr, stream);
}

void linear_backward_weight(Products& products, ConstFloats grad_out, ConstFloats x,
                            Floats grad_weight, const LinearShape& shape, Store store,
                            cudaStream_t stream) {
  if (shape.layout == WeightLayout::OutIn)
    products.multiply(shape.out_features, shape.in_features, shape.rows,
                      matrix(grad_out, shape.out_features, true), matrix(x, shape.in_features),
                      matrix(grad_weight, shape.in_features), store, nullptr, stream);
  else
    products.multiply(shape.in_features, shape.out_features, shape.rows,
                      matrix(x, shape.in_features, true), matrix(grad_out, shape.out_features),
                      matrix(grad_weight, shape.out_features), store, nullptr, stream);
}

}  // namespace shardplan::cuda
