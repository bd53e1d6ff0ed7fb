#include <oneapi/dnnl/dnnl.h>

#include <fmt/format.h>

#include "kernels/gemm.h"
#include "plans/error.h"

namespace shardplan::cpu {

void gemm_onednn(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, ConstMatrix a,
                 ConstMatrix b, float beta, float* out, std::int64_t out_stride) {
  const auto letter = [](Transpose transpose) { return transpose == Transpose::Yes ? 'T' : 'N'; };
  const dnnl_status_t status =
      dnnl_sgemm(letter(a.transpose), letter(b.transpose), m, n, k, alpha, a.data, a.stride, b.data,
                 b.stride, beta, out, out_stride);
  check(status != dnnl_invalid_arguments, "sizes and strides of a matrix product agree");
  if (status != dnnl_success)
    throw SystemError(fmt::format("oneDNN: the matrix product {} x {} x {} failed with status {}",
                                  m, n, k, static_cast<int>(status)));
}

}  // namespace shardplan::cpu
