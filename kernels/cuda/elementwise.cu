#include "kernels/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace shardplan::cuda {
namespace {

__global__ void swiglu_kernel(ConstFloats gate, ConstFloats up, Floats out) {
  for_each_pack(out.size(), [&](Pack pack) {
    const PackValues g = gate.load(pack);
    const PackValues u = up.load(pack);
    PackValues result;
    for (int i = 0; i < kPackElems; ++i)
      result[i] = shardplan::swiglu(g[i], u[i]);
    out.store(pack, result);
  });
}

__global__ void swiglu_backward_kernel(ConstFloats grad_out, ConstFloats gate, ConstFloats up,
                                       Floats grad_gate, Floats grad_up) {
  for_each_pack(grad_gate.size(), [&](Pack pack) {
    const PackValues grad = grad_out.load(pack);
    const PackValues g = gate.load(pack);
    const PackValues u = up.load(pack);
    PackValues to_gate;
    PackValues to_up;
    for (int i = 0; i < kPackElems; ++i) {
      const SwiGluGradient gradient = swiglu_gradient(grad[i], g[i], u[i]);
      to_gate[i] = gradient.gate;
      to_up[i] = gradient.up;
    }
    grad_gate.store(pack, to_gate);
    grad_up.store(pack, to_up);
  });
}

__global__ void gelu_kernel(ConstFloats x, Floats out, GeluKind kind) {
  for_each_pack(out.size(), [&](Pack pack) {
    PackValues values = x.load(pack);
    for (int i = 0; i < kPackElems; ++i)
      values[i] *=
          kind == GeluKind::Tanh ? gelu_tanh_gate(values[i]).value : normal_distribution(values[i]);
    out.store(pack, values);
  });
}

__global__ void gelu_backward_kernel(ConstFloats grad_out, ConstFloats x, Floats grad_x,
                                     GeluKind kind) {
  for_each_pack(grad_x.size(), [&](Pack pack) {
    const PackValues values = x.load(pack);
    PackValues grad = grad_out.load(pack);
    for (int i = 0; i < kPackElems; ++i)
      grad[i] *= kind == GeluKind::Tanh ? gelu_tanh_slope(values[i]) : gelu_erf_slope(values[i]);
    grad_x.store(pack, grad);
  });
}

__global__ void add_kernel(ConstFloats a, ConstFloats b, Floats out) {
  for_each_pack(out.size(), [&](Pack pack) {
    PackValues sum = a.load(pack);
    const PackValues other = b.load(pack);
    for (int i = 0; i < kPackElems; ++i)
      sum[i] += other[i];
    out.store(pack, sum);
  });
}

__global__ void scale_kernel(ConstFloats x, float factor, Floats out) {
  for_each_pack(out.size(), [&](Pack pack) {
    PackValues values = x.load(pack);
    for (int i = 0; i < kPackElems; ++i)
      values[i] *= factor;
    out.store(pack, values);
  });
}

__global__ void scale_sums_kernel(std::span<const double> x, double factor, std::span<double> out) {
  const std::int64_t i = thread_of_grid();
  if (i < static_cast<std::int64_t>(out.size())) out[i] = x[i] * factor;
}

__global__ void convert_kernel(ConstFloats x, Floats out) {
  for_each_pack(out.size(), [&](Pack pack) { out.store(pack, x.load(pack)); });
}

__global__ void position_embedding_kernel(ConstFloats x, ConstFloats weight, Floats out,
                                          std::int64_t sequence) {
  for_each_pack(out.size(), [&](Pack pack) {
    PackValues values = x.load(pack);
    for_each_below(pack.count, [&](int i) { values[i] += weight[(pack.first + i) % sequence]; });
    out.store(pack, values);
  });
}

template <typename T>
__global__ void fill_kernel(std::span<T> out, T value) {
  const std::int64_t i = thread_of_grid();
  if (i < static_cast<std::int64_t>(out.size())) out[i] = value;
}

}  // namespace

void swiglu(ConstFloats gate, ConstFloats up, Floats out, cudaStream_t stream) {
  launch_packs(swiglu_kernel, out.size(), stream, gate, up, out);
}

void swiglu_backward(ConstFloats grad_out, ConstFloats gate, ConstFloats up, Floats grad_gate,
                     Floats grad_up, cudaStream_t stream) {
  launch_packs(swiglu_backward_kernel, grad_gate.size(), stream, grad_out, gate, up, grad_gate,
               grad_up);
}

void gelu(ConstFloats x, Floats out, GeluKind kind, cudaStream_t stream) {
  launch_packs(gelu_kernel, out.size(), stream, x, out, kind);
}

void gelu_backward(ConstFloats grad_out, ConstFloats x, Floats grad_x, GeluKind kind,
                   cudaStream_t stream) {
  launch_packs(gelu_backward_kernel, grad_x.size(), stream, grad_out, x, grad_x, kind);
}

void add(ConstFloats a, ConstFloats b, Floats out, cudaStream_t stream) {
  launch_packs(add_kernel, out.size(), stream, a, b, out);
}

void scale(ConstFloats x, float factor, Floats out, cudaStream_t stream) {
  launch_packs(scale_kernel, out.size(), stream, x, factor, out);
}

void scale(std::span<const double> x, double factor, std::span<double> out, cudaStream_t stream) {
  launch(scale_sums_kernel, blocks_for(static_cast<std::int64_t>(out.size())), kBlockThreads,
         stream, x, factor, out);
}

void convert(ConstFloats x, Floats out, cudaStream_t stream) {
  launch_packs(convert_kernel, out.size(), stream, x, out);
}

void position_embedding(ConstFloats x, ConstFloats weight, Floats out, std::int64_t sequence,
                        cudaStream_t stream) {
  launch_packs(position_embedding_kernel, out.size(), stream, x, weight, out, sequence);
}

template <typename T>
void fill(std::span<T> out, T value, cudaStream_t stream) {
  launch(fill_kernel<T>, blocks_for(static_cast<std::int64_t>(out.size())), kBlockThreads, stream,
         out, value);
}
template void fill(std::span<double> out, double value, cudaStream_t stream);
template void fill(std::span<float> out, float value, cudaStream_t stream);
template void fill(std::span<BFloat16> out, BFloat16 value, cudaStream_t stream);
template void fill(std::span<std::int64_t> out, std::int64_t value, cudaStream_t stream);
template void fill(std::span<std::int32_t> out, std::int32_t value, cudaStream_t stream);
template void fill(std::span<StepFactors> out, StepFactors value, cudaStream_t stream);

}  // namespace shardplan::cuda
