#include "kernels/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"

namespace shardplan::cuda {
namespace {

__global__ void adam_kernel(ConstFloats grad, ConstFloats grad_scale, Floats parameter,
                            Floats exp_avg, Floats exp_avg_sq, AdamCoefficients coefficients,
                            std::span<const StepFactors> now) {
  const float scale = grad_scale[0];
  coefficients.set(now[0]);
  for_each_pack(parameter.size(), [&](Pack pack) {
    const PackValues g = grad.load(pack);
    PackValues p = parameter.load(pack);
    PackValues m = exp_avg.load(pack);
    PackValues v = exp_avg_sq.load(pack);
    for (int i = 0; i < kPackElems; ++i) {
      const AdamElement updated = adam_update(g[i] * scale, {p[i], m[i], v[i]}, coefficients);
      p[i] = updated.parameter;
      m[i] = updated.exp_avg;
      v[i] = updated.exp_avg_sq;
    }
    parameter.store(pack, p);
    exp_avg.store(pack, m);
    exp_avg_sq.store(pack, v);
  });
}

__global__ void sgd_kernel(ConstFloats grad, ConstFloats grad_scale, Floats parameter,
                           Floats momentum_buffer, SgdCoefficients c,
                           std::span<const StepFactors> now) {
  const float scale = grad_scale[0];
  c.set(now[0]);
  const bool has_momentum = momentum_buffer.size() > 0;
  for_each_pack(parameter.size(), [&](Pack pack) {
    PackValues g = grad.load(pack);
    PackValues p = parameter.load(pack);
    for (int i = 0; i < kPackElems; ++i)
      g[i] = g[i] * scale + c.decay * p[i];
    if (has_momentum) {
      const PackValues before = momentum_buffer.load(pack);
      for (int i = 0; i < kPackElems; ++i)
        g[i] = c.momentum * before[i] + g[i];
      momentum_buffer.store(pack, g);
    }
    for (int i = 0; i < kPackElems; ++i)
      p[i] -= c.lr * g[i];
    parameter.store(pack, p);
  });
}

/// partials[block] = what this block's threads found of the squares.
__global__ void sum_squares_kernel(ConstFloats x, std::span<double> partials) {
  double sum = 0;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = thread_of_grid(); i < x.size(); i += threads)
    sum += static_cast<double>(x[i]) * x[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void add_partials_kernel(std::span<const double> partials, std::span<double> sum,
                                    bool accumulate) {
  const double total = sum_of_partials(partials);
  if (threadIdx.x == 0) sum[0] = accumulate ? sum[0] + total : total;
}

__global__ void gradient_norm_kernel(std::span<const double> sum_squares, float max_norm,
                                     Floats norm, Floats coefficient) {
  const auto root = static_cast<float>(sqrt(sum_squares[0]));
  norm.put(0, root);
  coefficient.put(0, clip_coefficient(root, max_norm));
}

}  // namespace

void adam(ConstFloats grad, ConstFloats grad_scale, Floats parameter, Floats exp_avg,
          Floats exp_avg_sq, const AdamStep& step, std::span<const StepFactors> now,
          cudaStream_t stream) {
  launch_packs(adam_kernel, parameter.size(), stream, grad, grad_scale, parameter, exp_avg,
               exp_avg_sq, AdamCoefficients(step), now);
}

void sgd(ConstFloats grad, ConstFloats grad_scale, Floats parameter, Floats momentum_buffer,
         const SgdStep& step, std::span<const StepFactors> now, cudaStream_t stream) {
  launch_packs(sgd_kernel, parameter.size(), stream, grad, grad_scale, parameter, momentum_buffer,
               SgdCoefficients(step), now);
}

void sum_squares(ConstFloats x, std::span<double> sum, std::span<double> partials, Store store,
                 cudaStream_t stream) {
  const std::span<double> used = partials_for(x.size(), partials);
  launch(sum_squares_kernel, dim3(static_cast<unsigned>(used.size())), kBlockThreads, stream, x,
         used);
  launch(add_partials_kernel, dim3(1), kBlockThreads, stream, used, sum,
         store == Store::Accumulate);
}

void gradient_norm(std::span<const double> sum_squares, float max_norm, Floats norm,
                   Floats coefficient, cudaStream_t stream) {
  launch(gradient_norm_kernel, dim3(1), 1, stream, sum_squares, max_norm, norm, coefficient);
}

}  // namespace shardplan::cuda
