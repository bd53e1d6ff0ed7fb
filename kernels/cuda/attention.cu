#include <cmath>

#include "kernels/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"

// FlashAttention-2 (Dao 2023) without atomics: queries are the rows of forward and of the gradient
// of queries, keys are those of the gradients of keys and values. A warp works on one row; the
// block's warps share tiles of kWarp vectors of the other side in shared memory. For the products a
// lane owns a vector of the tile, for the sums it owns channels.
namespace shardplan::cuda {
namespace {

/// Rows of a block, a warp each: as many as leave its shared memory below the 48 KiB that every GPU
/// grants without being asked.
template <int kDim>
constexpr int kRows = kDim <= 128 ? 8 : 4;
template <int kDim>
constexpr int kThreads = kRows<kDim>* kWarp;

/// Which batch, head and rows a block works on.
struct Place {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t first_row;

  __device__ std::int64_t row() const { return first_row + warp_of_block(); }
};
template <int kDim>
__host__ __device__ unsigned blocks_per_head(const AttentionShape& shape) {
  return static_cast<unsigned>((shape.time + kRows<kDim> - 1) / kRows<kDim>);
}
/// `heads`: those that have rows of their own. Division is of 32 bits: that of 64 is a subroutine.
template <int kDim>
__device__ Place place_of_block(const AttentionShape& shape, std::int64_t heads) {
  const unsigned blocks = blocks_per_head<kDim>(shape);
  const unsigned head = blockIdx.x / blocks;
  const auto count = static_cast<unsigned>(heads);
  return {head / count, head % count, blockIdx.x % blocks * kRows<kDim>};
}
/// Query heads that share a head of keys and values.
__device__ std::int64_t sharing_heads(const AttentionShape& shape) {
  return static_cast<unsigned>(shape.heads) / static_cast<unsigned>(shape.kv_heads);
}
__device__ std::int64_t kv_head_of(const AttentionShape& shape, const Place& place) {
  return static_cast<unsigned>(place.head) / static_cast<unsigned>(sharing_heads(shape));
}
template <int kDim>
dim3 blocks_of(const AttentionShape& shape, std::int64_t heads) {
  return dim3(static_cast<unsigned>(shape.batch * heads) * blocks_per_head<kDim>(shape));
}

/// Vectors of one head in a tensor: that of a token begins at `at + token * stride`.
struct Vectors {
  std::int64_t at;
  std::int64_t stride;

  __device__ std::int64_t of(std::int64_t token) const { return at + token * stride; }
};
__device__ Vectors queries_of(const AttentionShape& s, std::int64_t batch, std::int64_t head) {
  return {batch * s.time * s.query_stride + head * s.head_dim, s.query_stride};
}
__device__ Vectors keys_of(const AttentionShape& s, std::int64_t batch, std::int64_t kv_head) {
  return {batch * s.time * s.key_value_stride + kv_head * s.head_dim, s.key_value_stride};
}
__device__ Vectors outputs_of(const AttentionShape& s, std::int64_t batch, std::int64_t head) {
  return {(batch * s.time * s.heads + head) * s.head_dim, s.heads * s.head_dim};
}
__device__ std::int64_t lse_of(const AttentionShape& s, std::int64_t batch, std::int64_t head,
                               std::int64_t token) {
  return (batch * s.heads + head) * s.time + token;
}

__device__ std::int64_t window_of(const AttentionShape& shape) {
  return shape.window > 0 ? shape.window : shape.time;
}
__device__ bool sees(const AttentionShape& shape, std::int64_t query, std::int64_t key) {
  return query < shape.time && key <= query && query - key < window_of(shape);
}

/// Shared memory of a block, for heads of at most kDim.
template <int kDim>
struct Shared {
  float tile[kWarp][kDim + 1];     // lanes that read a column meet no bank twice
  float row[kRows<kDim>][kDim];    // a vector of every warp's own row
  float other[kRows<kDim>][kDim];  // another one
  float weight[kRows<kDim>][kWarp];
};

/// The vectors of kWarp tokens from `first` on; beyond the last token they are 0. All threads of
/// the block call it.
template <int kDim>
__device__ void load_tile(Shared<kDim>& shared, const ConstFloats& x, const Vectors& vectors,
                          std::int64_t first, const AttentionShape& shape) {
  __syncthreads();  // the last tile's readers are done
  for (int token = warp_of_block(); token < kWarp; token += kRows<kDim>)
    for (int d = lane_of_warp(); d < shape.head_dim; d += kWarp)
      shared.tile[token][d] = first + token < shape.time ? x[vectors.of(first + token) + d] : 0.0F;
  __syncthreads();
}

/// The vector of the warp's own row, for its lanes to read once a tile is loaded.
__device__ void load_row(float* to, const ConstFloats& x, const Vectors& vectors,
                         std::int64_t token, const AttentionShape& shape) {
  for (int d = lane_of_warp(); d < shape.head_dim; d += kWarp)
    to[d] = token < shape.time ? x[vectors.of(token) + d] : 0.0F;
}

/// The product of a row's vector and this lane's vector of the tile.
template <int kDim>
__device__ float dot(const Shared<kDim>& shared, const float* row, const AttentionShape& shape) {
  float sum = 0;
  for (int d = 0; d < shape.head_dim; ++d)
    sum = fmaf(row[d], shared.tile[lane_of_warp()][d], sum);
  return sum;
}

/// Sums of weighted vectors, of which a lane has every kWarp-th channel.
template <int kDim>
struct Sums {
  static constexpr int kChannels = (kDim + kWarp - 1) / kWarp;
  float value[kChannels] = {};

  /// Adds the tile's vectors times the weights of the lanes. Between two calls a tile is loaded, so
  /// that the weights of the last one have been read.
  __device__ void add(Shared<kDim>& shared, float weight, const AttentionShape& shape) {
    float* weights = shared.weight[warp_of_block()];
    weights[lane_of_warp()] = weight;
    __syncwarp();
    for (int token = 0; token < kWarp; ++token)
      for (int c = 0; c < kChannels; ++c) {
        const int d = lane_of_warp() + c * kWarp;
        if (d < shape.head_dim) value[c] = fmaf(weights[token], shared.tile[token][d], value[c]);
      }
  }
  __device__ void scale(float factor) {
    for (float& sum : value)
      sum *= factor;
  }
  __device__ void put(const Floats& out, std::int64_t at, const AttentionShape& shape) const {
    for (int c = 0; c < kChannels; ++c) {
      const int d = lane_of_warp() + c * kWarp;
      if (d < shape.head_dim) out.put(at + d, value[c]);
    }
  }
};

/// Keys that some row of a block of queries sees: [begin, end).
struct KeyRange {
  std::int64_t begin;
  std::int64_t end;
};
template <int kDim>
__device__ KeyRange keys_seen(const AttentionShape& shape, const Place& place) {
  const std::int64_t begin = place.first_row + 1 - window_of(shape);
  const std::int64_t end = place.first_row + kRows<kDim>;
  return {begin < 0 ? 0 : begin, end < shape.time ? end : shape.time};
}

template <int kDim>
__global__ void __launch_bounds__(kThreads<kDim>, 2)
    attention_kernel(ConstFloats q, ConstFloats k, ConstFloats v, Floats out, Floats lse,
                     AttentionShape shape) {
  __shared__ Shared<kDim> shared;
  const Place place = place_of_block<kDim>(shape, shape.heads);
  const Vectors keys = keys_of(shape, place.batch, kv_head_of(shape, place));
  float* query = shared.row[warp_of_block()];
  load_row(query, q, queries_of(shape, place.batch, place.head), place.row(), shape);

  Sums<kDim> mixed;
  float largest = -INFINITY;
  float sum = 0;
  const KeyRange range = keys_seen<kDim>(shape, place);
  for (std::int64_t first = range.begin; first < range.end; first += kWarp) {
    load_tile(shared, k, keys, first, shape);
    const bool visible = sees(shape, place.row(), first + lane_of_warp());
    const float score = visible ? dot(shared, query, shape) * shape.scale : -INFINITY;
    const float larger = fmaxf(largest, warp_max(score));
    const float weight = visible ? exponential(score - larger) : 0.0F;
    const float kept = largest > -INFINITY ? exponential(largest - larger) : 0.0F;
    largest = larger;
    sum = sum * kept + warp_sum(weight);
    mixed.scale(kept);
    load_tile(shared, v, keys, first, shape);
    mixed.add(shared, weight, shape);
  }
  if (place.row() >= shape.time) return;
  mixed.scale(1 / sum);
  mixed.put(out, outputs_of(shape, place.batch, place.head).of(place.row()), shape);
  if (lane_of_warp() == 0)
    lse.put(lse_of(shape, place.batch, place.head, place.row()), largest + std::log(sum));
}

/// row_dots = sum over the channels of grad_out * out, which is the sum over the keys of P * dP.
template <int kDim>
__global__ void row_dots_kernel(ConstFloats grad_out, ConstFloats out, std::span<float> row_dots,
                                AttentionShape shape) {
  const Place place = place_of_block<kDim>(shape, shape.heads);
  if (place.row() >= shape.time) return;
  const std::int64_t at = outputs_of(shape, place.batch, place.head).of(place.row());
  double sum = 0;
  for (std::int64_t d = lane_of_warp(); d < shape.head_dim; d += kWarp)
    sum += static_cast<double>(grad_out[at + d]) * out[at + d];
  sum = warp_sum(sum);
  if (lane_of_warp() == 0)
    row_dots[lse_of(shape, place.batch, place.head, place.row())] = static_cast<float>(sum);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads<kDim>, 2)
    grad_query_kernel(ConstFloats grad_out, ConstFloats q, ConstFloats k, ConstFloats v,
                      ConstFloats lse, std::span<const float> row_dots, Floats grad_q,
                      AttentionShape shape) {
  __shared__ Shared<kDim> shared;
  const Place place = place_of_block<kDim>(shape, shape.heads);
  const Vectors keys = keys_of(shape, place.batch, kv_head_of(shape, place));
  const Vectors queries = queries_of(shape, place.batch, place.head);
  float* query = shared.row[warp_of_block()];
  float* grad = shared.other[warp_of_block()];
  load_row(query, q, queries, place.row(), shape);
  load_row(grad, grad_out, outputs_of(shape, place.batch, place.head), place.row(), shape);
  const bool exists = place.row() < shape.time;
  const std::int64_t statistic = lse_of(shape, place.batch, place.head, place.row());
  const float log_sum = exists ? lse[statistic] : 0;
  const float row_dot = exists ? row_dots[statistic] : 0;

  Sums<kDim> sums;
  const KeyRange range = keys_seen<kDim>(shape, place);
  for (std::int64_t first = range.begin; first < range.end; first += kWarp) {
    const bool visible = sees(shape, place.row(), first + lane_of_warp());
    load_tile(shared, v, keys, first, shape);
    const float grad_probability = dot(shared, grad, shape);
    load_tile(shared, k, keys, first, shape);
    const float score = dot(shared, query, shape) * shape.scale;
    const float probability = visible ? exponential(score - log_sum) : 0.0F;
    sums.add(shared, probability * (grad_probability - row_dot) * shape.scale, shape);
  }
  if (exists) sums.put(grad_q, queries.of(place.row()), shape);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads<kDim>, 2)
    grad_key_value_kernel(ConstFloats grad_out, ConstFloats q, ConstFloats k, ConstFloats v,
                          ConstFloats lse, std::span<const float> row_dots, Floats grad_k,
                          Floats grad_v, AttentionShape shape) {
  __shared__ Shared<kDim> shared;
  const Place place = place_of_block<kDim>(shape, shape.kv_heads);
  const Vectors keys = keys_of(shape, place.batch, place.head);
  const std::int64_t sharing = sharing_heads(shape);
  float* key = shared.row[warp_of_block()];
  float* value = shared.other[warp_of_block()];
  load_row(key, k, keys, place.row(), shape);
  load_row(value, v, keys, place.row(), shape);

  Sums<kDim> key_sums;
  Sums<kDim> value_sums;
  const std::int64_t last = place.first_row + kRows<kDim> - 1 + window_of(shape);
  const std::int64_t end = last < shape.time ? last : shape.time;
  for (std::int64_t head = place.head * sharing; head < (place.head + 1) * sharing; ++head)
    for (std::int64_t first = place.first_row; first < end; first += kWarp) {
      const std::int64_t token = first + lane_of_warp();
      const bool visible = place.row() < shape.time && sees(shape, token, place.row());
      const std::int64_t statistic = lse_of(shape, place.batch, head, token);
      const Vectors queries = queries_of(shape, place.batch, head);
      load_tile(shared, q, queries, first, shape);
      const float score = dot(shared, key, shape) * shape.scale;
      const float probability = visible ? exponential(score - lse[statistic]) : 0.0F;
      load_tile(shared, grad_out, outputs_of(shape, place.batch, head), first, shape);
      const float grad_probability = dot(shared, value, shape);
      value_sums.add(shared, probability, shape);
      const float grad_score =
          visible ? probability * (grad_probability - row_dots[statistic]) * shape.scale : 0.0F;
      load_tile(shared, q, queries, first, shape);
      key_sums.add(shared, grad_score, shape);
    }
  if (place.row() >= shape.time) return;
  key_sums.put(grad_k, keys.of(place.row()), shape);
  value_sums.put(grad_v, keys.of(place.row()), shape);
}

/// Calls run(dim) with the kernels' smallest bound of a head as a constant.
template <typename Run>
void with_head_bound(std::int64_t head_dim, Run run) {
  if (head_dim <= 64) return run(std::integral_constant<int, 64>());
  if (head_dim <= 128) return run(std::integral_constant<int, 128>());
  run(std::integral_constant<int, kMostHeadDim>());
}

}  // namespace

void attention(ConstFloats q, ConstFloats k, ConstFloats v, Floats out, Floats lse,
               const AttentionShape& shape, cudaStream_t stream) {
  with_head_bound(shape.head_dim, [&](auto dim) {
    launch(attention_kernel<dim()>, blocks_of<dim()>(shape, shape.heads), kThreads<dim()>, stream,
           q, k, v, out, lse, shape);
  });
}

void attention_backward(ConstFloats grad_out, ConstFloats q, ConstFloats k, ConstFloats v,
                        ConstFloats out, ConstFloats lse, Floats grad_q, Floats grad_k,
                        Floats grad_v, std::span<float> row_dots, const AttentionShape& shape,
                        cudaStream_t stream) {
  const std::span<const float> dots = row_dots;
  with_head_bound(shape.head_dim, [&](auto dim) {
    constexpr int kThreadsOfBlock = kThreads<dim()>;
    const dim3 blocks = blocks_of<dim()>(shape, shape.heads);
    launch(row_dots_kernel<dim()>, blocks, kThreadsOfBlock, stream, grad_out, out, row_dots, shape);
    launch(grad_query_kernel<dim()>, blocks, kThreadsOfBlock, stream, grad_out, q, k, v, lse, dots,
           grad_q, shape);
    launch(grad_key_value_kernel<dim()>, blocks_of<dim()>(shape, shape.kv_heads), kThreadsOfBlock,
           stream, grad_out, q, k, v, lse, dots, grad_k, grad_v, shape);
  });
}

}  // namespace shardplan::cuda
