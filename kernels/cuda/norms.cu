#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"

namespace shardplan::cuda {
namespace {

constexpr int kWarps = kBlockThreads / kWarp;

/// A row of a tensor [rows, channels] that one warp works on; `index` is below 0 when there is none
/// left for this warp.
struct Row {
  std::int64_t index;
  std::int64_t channels;

  /// Calls body(channel, element) for this lane's channels.
  template <typename Body>
  __device__ void for_each(Body body) const {
    for (std::int64_t c = lane_of_warp(); c < channels; c += kWarp)
      body(c, index * channels + c);
  }
};

/// The row of this warp.
__device__ Row row_of_warp(std::int64_t elems, std::int64_t channels) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_of_block();
  return {row < elems / channels ? row : -1, channels};
}

dim3 blocks_for_rows(std::int64_t elems, std::int64_t channels) {
  return blocks_for(elems / channels, kWarps);
}

__global__ void rms_norm_kernel(ConstFloats x, ConstFloats weight, Floats out, Floats rstd,
                                std::int64_t channels, float epsilon) {
  const Row row = row_of_warp(out.size(), channels);
  if (row.index < 0) return;
  double squares = 0;
  row.for_each([&](std::int64_t, std::int64_t i) { squares += static_cast<double>(x[i]) * x[i]; });
  const double mean_square = warp_sum(squares) / static_cast<double>(channels);
  const auto scale = static_cast<float>(1.0 / sqrt(mean_square + epsilon));
  row.for_each([&](std::int64_t c, std::int64_t i) { out.put(i, x[i] * scale * weight[c]); });
  if (lane_of_warp() == 0) rstd.put(row.index, scale);
}

// With y = x * rstd and g = grad_out * weight: grad_x = rstd * (g - y * mean(g * y)).
__global__ void rms_norm_grad_x_kernel(ConstFloats grad_out, ConstFloats x, ConstFloats weight,
                                       ConstFloats rstd, Floats grad_x, bool accumulate) {
  const Row row = row_of_warp(grad_x.size(), weight.size());
  if (row.index < 0) return;
  double along = 0;
  row.for_each([&](std::int64_t c, std::int64_t i) {
    along += static_cast<double>(grad_out[i] * weight[c]) * x[i];
  });
  const float scale = rstd[row.index];
  const double mean_gy = scale / static_cast<double>(row.channels) * warp_sum(along);
  const auto along_x = static_cast<float>(mean_gy * scale);
  row.for_each([&](std::int64_t c, std::int64_t i) {
    grad_x.put(i, scale * (grad_out[i] * weight[c] - x[i] * along_x), accumulate);
  });
}

__global__ void layer_norm_kernel(ConstFloats x, ConstFloats weight, ConstFloats bias, Floats out,
                                  Floats mean, Floats rstd, std::int64_t channels, float epsilon) {
  const Row row = row_of_warp(out.size(), channels);
  if (row.index < 0) return;
  const auto count = static_cast<double>(channels);
  double sum = 0;
  row.for_each([&](std::int64_t, std::int64_t i) { sum += x[i]; });
  const double center = warp_sum(sum) / count;
  double squares = 0;
  row.for_each([&](std::int64_t, std::int64_t i) {
    const double deviation = x[i] - center;
    squares += deviation * deviation;
  });
  const double variance = warp_sum(squares) / count;
  const auto shift = static_cast<float>(center);
  const auto scale = static_cast<float>(1.0 / sqrt(variance + epsilon));
  row.for_each([&](std::int64_t c, std::int64_t i) {
    out.put(i, (x[i] - shift) * scale * weight[c] + bias[c]);
  });
  if (lane_of_warp() == 0) {
    mean.put(row.index, shift);
    rstd.put(row.index, scale);
  }
}

// With y = (x - mean) * rstd and g = grad_out * weight:
// grad_x = rstd * (g - mean(g) - y * mean(g * y)).
__global__ void layer_norm_grad_x_kernel(ConstFloats grad_out, ConstFloats x, ConstFloats weight,
                                         ConstFloats mean, ConstFloats rstd, Floats grad_x,
                                         bool accumulate) {
  const Row row = row_of_warp(grad_x.size(), weight.size());
  if (row.index < 0) return;
  const auto count = static_cast<double>(row.channels);
  const float shift = mean[row.index];
  const float scale = rstd[row.index];
  double sum = 0;
  double along = 0;
  row.for_each([&](std::int64_t c, std::int64_t i) {
    const float g = grad_out[i] * weight[c];
    sum += g;
    along += static_cast<double>(g) * ((x[i] - shift) * scale);
  });
  const auto mean_g = static_cast<float>(warp_sum(sum) / count);
  const auto mean_gy = static_cast<float>(warp_sum(along) / count);
  row.for_each([&](std::int64_t c, std::int64_t i) {
    const float y = (x[i] - shift) * scale;
    grad_x.put(i, scale * (grad_out[i] * weight[c] - mean_g - y * mean_gy), accumulate);
  });
}

/// out[column] = sum over the rows of term(row, element), for the columns of a block: a warp's
/// lanes are columns, its warps split the rows, and their sums are added in order.
template <typename Term>
__device__ void column_sums(std::int64_t rows, const Floats& out, bool accumulate, Term term) {
  __shared__ double partial[kWarps][kWarp];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane_of_warp();
  double sum = 0;
  if (column < out.size())
    for (std::int64_t row = warp_of_block(); row < rows; row += kWarps)
      sum += term(row, row * out.size() + column);
  partial[warp_of_block()][lane_of_warp()] = sum;
  __syncthreads();
  if (warp_of_block() != 0 || column >= out.size()) return;
  double total = 0;
  for (int warp = 0; warp < kWarps; ++warp)
    total += partial[warp][lane_of_warp()];
  out.put(column, static_cast<float>(total), accumulate);
}

__global__ void sum_rows_kernel(ConstFloats x, Floats out, bool accumulate) {
  column_sums(x.size() / out.size(), out, accumulate,
              [&](std::int64_t, std::int64_t i) { return x[i]; });
}

__global__ void rms_norm_grad_weight_kernel(ConstFloats grad_out, ConstFloats x, ConstFloats rstd,
                                            Floats grad_weight, bool accumulate) {
  column_sums(rstd.size(), grad_weight, accumulate,
              [&](std::int64_t row, std::int64_t i) { return grad_out[i] * (x[i] * rstd[row]); });
}

__global__ void layer_norm_grad_weight_kernel(ConstFloats grad_out, ConstFloats x, ConstFloats mean,
                                              ConstFloats rstd, Floats grad_weight,
                                              bool accumulate) {
  column_sums(rstd.size(), grad_weight, accumulate, [&](std::int64_t row, std::int64_t i) {
    return grad_out[i] * ((x[i] - mean[row]) * rstd[row]);
  });
}

bool adds(Store store) { return store == Store::Accumulate; }

dim3 blocks_for_columns(const Floats& out) { return blocks_for(out.size(), kWarp); }

}  // namespace

void rms_norm(ConstFloats x, ConstFloats weight, Floats out, Floats rstd, std::int64_t channels,
              float epsilon, cudaStream_t stream) {
  launch(rms_norm_kernel, blocks_for_rows(out.size(), channels), kBlockThreads, stream, x, weight,
         out, rstd, channels, epsilon);
}

void rms_norm_backward(ConstFloats grad_out, ConstFloats x, ConstFloats weight, ConstFloats rstd,
                       Floats grad_x, Floats grad_weight, Store store_x, Store store_weight,
                       cudaStream_t stream) {
  launch(rms_norm_grad_weight_kernel, blocks_for_columns(grad_weight), kBlockThreads, stream,
         grad_out, x, rstd, grad_weight, adds(store_weight));
  launch(rms_norm_grad_x_kernel, blocks_for_rows(grad_x.size(), weight.size()), kBlockThreads,
         stream, grad_out, x, weight, rstd, grad_x, adds(store_x));
}

void layer_norm(ConstFloats x, ConstFloats weight, ConstFloats bias, Floats out, Floats mean,
                Floats rstd, std::int64_t channels, float epsilon, cudaStream_t stream) {
  launch(layer_norm_kernel, blocks_for_rows(out.size(), channels), kBlockThreads, stream, x, weight,
         bias, out, mean, rstd, channels, epsilon);
}

void layer_norm_backward(ConstFloats grad_out, ConstFloats x, ConstFloats weight, ConstFloats mean,
                         ConstFloats rstd, Floats grad_x, Floats grad_weight, Floats grad_bias,
                         Store store_x, Store store_weight, Store store_bias, cudaStream_t stream) {
  launch(layer_norm_grad_weight_kernel, blocks_for_columns(grad_weight), kBlockThreads, stream,
         grad_out, x, mean, rstd, grad_weight, adds(store_weight));
  sum_rows(grad_out, grad_bias, store_bias, stream);
  launch(layer_norm_grad_x_kernel, blocks_for_rows(grad_x.size(), weight.size()), kBlockThreads,
         stream, grad_out, x, weight, mean, rstd, grad_x, adds(store_x));
}

void sum_rows(ConstFloats x, Floats out, Store store, cudaStream_t stream) {
  launch(sum_rows_kernel, blocks_for_columns(out), kBlockThreads, stream, x, out, adds(store));
}

}  // namespace shardplan::cuda
