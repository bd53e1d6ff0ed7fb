#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

/// Query rows [begin, begin + rows) of one head against keys [first_key, keys). Scores lie in the
/// workspace as a matrix [rows, keys]; what the mask hides is 0 there once the tile is done.
struct Tile {
  std::int64_t begin;
  std::int64_t rows;
  std::int64_t first_key;  // no row of the tile sees earlier keys
  std::int64_t keys;
  std::int64_t window;  // tokens that a query sees

  /// The keys that row `row` sees are [visible_begin(row), visible_end(row)).
  std::int64_t visible_begin(std::int64_t row) const {
    return std::max<std::int64_t>(0, begin + row + 1 - window);
  }
  std::int64_t visible_end(std::int64_t row) const { return begin + row + 1; }
};

/// Calls body(tile) for the tiles of one head, from the first query to the last.
template <typename Body>
void for_each_tile(const AttentionShape& shape, Body body) {
  const std::int64_t window = shape.window > 0 ? shape.window : shape.time;
  for (std::int64_t begin = 0; begin < shape.time; begin += shape.block_rows) {
    const std::int64_t keys = std::min(begin + shape.block_rows, shape.time);
    const std::int64_t first_key = std::max<std::int64_t>(0, begin + 1 - window);
    body(Tile{begin, keys - begin, first_key, keys, window});
  }
}

/// Where one query head, and the key and value head that serves it, begin in their tensors.
struct HeadOffsets {
  std::int64_t query;      // in q and grad_q
  std::int64_t key_value;  // in k, v, grad_k and grad_v
  std::int64_t out;        // in out and grad_out
  std::int64_t lse;
};

template <typename Body>
void for_each_head(const AttentionShape& shape, Body body) {
  const std::int64_t queries_per_key = shape.heads / shape.kv_heads;
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t kv_head = head / queries_per_key;
      body(HeadOffsets{
          .query = b * shape.time * shape.query_stride + head * shape.head_dim,
          .key_value = b * shape.time * shape.key_value_stride + kv_head * shape.head_dim,
          .out = (b * shape.time * shape.heads + head) * shape.head_dim,
          .lse = (b * shape.heads + head) * shape.time});
    }
}

/// products[row, key] = scale * dot(queries[row], keys[key]) for every pair in the tile.
void multiply_pairs(Gemm gemm, const Tile& tile, const AttentionShape& shape, float scale,
                    ConstMatrix queries, const float* keys, float* products) {
  gemm(tile.rows, tile.keys - tile.first_key, shape.head_dim, scale, queries,
       {keys + tile.first_key * shape.key_value_stride, shape.key_value_stride, Transpose::Yes},
       0.0F, products + tile.first_key, tile.keys);
}

/// out[row] = sum over the keys of weights[row, key] * values[key].
void mix_values(Gemm gemm, const Tile& tile, const AttentionShape& shape, const float* weights,
                const float* values, float* out, std::int64_t out_stride) {
  gemm(tile.rows, shape.head_dim, tile.keys - tile.first_key, 1.0F,
       {weights + tile.first_key, tile.keys},
       {values + tile.first_key * shape.key_value_stride, shape.key_value_stride}, 0.0F, out,
       out_stride);
}

/// sums[key] += sum over the rows of weights[row, key] * rows[row].
void add_to_keys(Gemm gemm, const Tile& tile, const AttentionShape& shape, const float* weights,
                 ConstMatrix rows, float* sums) {
  gemm(tile.keys - tile.first_key, shape.head_dim, tile.rows, 1.0F,
       {weights + tile.first_key, tile.keys, Transpose::Yes}, rows, 1.0F,
       sums + tile.first_key * shape.key_value_stride, shape.key_value_stride);
}

/// What the mask leaves of a row of `scores`; the rest of the row becomes 0.
std::span<float> visible_part(const Tile& tile, float* scores, std::int64_t row) {
  const std::int64_t begin = tile.visible_begin(row);
  const std::int64_t end = tile.visible_end(row);
  float* row_scores = scores + row * tile.keys;
  std::fill(row_scores, row_scores + begin, 0.0F);
  std::fill(row_scores + end, row_scores + tile.keys, 0.0F);
  return {row_scores + begin, row_scores + end};
}

/// Scores become probabilities; lse[row] = log of the sum of exponentials.
SHARDPLAN_CLONE_FOR_AVX2
void softmax(const Tile& tile, float* scores, float* lse) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const std::span<float> visible = visible_part(tile, scores, row);
    const auto count = static_cast<std::int64_t>(visible.size());
    const float largest = lane_max(visible.data(), count);
    for (float& value : visible)
      value = exponential(value - largest);
    const double sum = lane_sum(count, [=](std::int64_t i) { return visible[i]; });
    const auto factor = static_cast<float>(1 / sum);
    for (float& value : visible)
      value *= factor;
    lse[row] = static_cast<float>(largest + std::log(sum));
  }
}

/// Scores become probabilities again, by the sums that forward kept.
SHARDPLAN_CLONE_FOR_AVX2
void softmax_again(const Tile& tile, float* scores, const float* lse) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const float log_sum = lse[row];
    for (float& value : visible_part(tile, scores, row))
      value = exponential(value - log_sum);
  }
}

/// Gradients of the probabilities become those of the raw products q k; `grad_out` and `out` are
/// rows of head_dim.
SHARDPLAN_CLONE_FOR_AVX2
void softmax_backward(const Tile& tile, const AttentionShape& shape, const float* probabilities,
                      const float* grad_out, const float* out, float* gradients) {
  const std::int64_t stride = shape.heads * shape.head_dim;
  const float scale = shape.scale;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    // The sum over the keys of P * dP, as FlashAttention-2 computes it.
    const auto mean = static_cast<float>(lane_sum(shape.head_dim, [=](std::int64_t i) {
      return static_cast<double>(grad_out[row * stride + i]) * out[row * stride + i];
    }));
    const std::span<float> visible = visible_part(tile, gradients, row);
    const float* probability = probabilities + row * tile.keys + tile.visible_begin(row);
    for (std::size_t i = 0; i < visible.size(); ++i)
      visible[i] = probability[i] * (visible[i] - mean) * scale;
  }
}

void zero_rows(float* rows, std::int64_t count, std::int64_t width, std::int64_t stride) {
  for (std::int64_t row = 0; row < count; ++row)
    std::fill_n(rows + row * stride, width, 0.0F);
}

}  // namespace

std::int64_t attention_tile_elems(std::int64_t time, std::int64_t block_rows) {
  std::int64_t largest = 0;
  for (std::int64_t begin = 0; begin < time; begin += block_rows) {
    const std::int64_t end = std::min(begin + block_rows, time);
    largest = std::max(largest, (end - begin) * end);
  }
  return largest;
}

void attention(Gemm gemm, const float* q, const float* k, const float* v, float* out, float* lse,
               float* workspace, const AttentionShape& shape) {
  const std::int64_t out_stride = shape.heads * shape.head_dim;
  for_each_head(shape, [&](const HeadOffsets& head) {
    for_each_tile(shape, [&](const Tile& tile) {
      const float* queries = q + head.query + tile.begin * shape.query_stride;
      multiply_pairs(gemm, tile, shape, shape.scale, {queries, shape.query_stride},
                     k + head.key_value, workspace);
      softmax(tile, workspace, lse + head.lse + tile.begin);
      mix_values(gemm, tile, shape, workspace, v + head.key_value,
                 out + head.out + tile.begin * out_stride, out_stride);
    });
  });
}

void attention_backward(Gemm gemm, const float* grad_out, const float* q, const float* k,
                        const float* v, const float* out, const float* lse, float* grad_q,
                        float* grad_k, float* grad_v, float* workspace,
                        const AttentionShape& shape) {
  const std::int64_t out_stride = shape.heads * shape.head_dim;
  float* probabilities = workspace;
  float* gradients = workspace + attention_tile_elems(shape.time, shape.block_rows);
  // Several query heads and tiles add to the gradients of a key or value.
  const std::int64_t tokens = shape.batch * shape.time;
  zero_rows(grad_k, tokens, shape.kv_heads * shape.head_dim, shape.key_value_stride);
  zero_rows(grad_v, tokens, shape.kv_heads * shape.head_dim, shape.key_value_stride);

  for_each_head(shape, [&](const HeadOffsets& head) {
    for_each_tile(shape, [&](const Tile& tile) {
      const std::int64_t query = head.query + tile.begin * shape.query_stride;
      const std::int64_t row = head.out + tile.begin * out_stride;
      const ConstMatrix queries{q + query, shape.query_stride};
      const ConstMatrix grad_rows{grad_out + row, out_stride};
      multiply_pairs(gemm, tile, shape, shape.scale, queries, k + head.key_value, probabilities);
      softmax_again(tile, probabilities, lse + head.lse + tile.begin);
      add_to_keys(gemm, tile, shape, probabilities, grad_rows, grad_v + head.key_value);
      multiply_pairs(gemm, tile, shape, 1.0F, grad_rows, v + head.key_value, gradients);
      softmax_backward(tile, shape, probabilities, grad_out + row, out + row, gradients);
      mix_values(gemm, tile, shape, gradients, k + head.key_value, grad_q + query,
                 shape.query_stride);
      add_to_keys(gemm, tile, shape, gradients, queries, grad_k + head.key_value);
    });
  });
}

}  // namespace shardplan::cpu
