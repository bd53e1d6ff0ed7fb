#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/arithmetic.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
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

  /// Some of its rows as a tile of their own, whose scores begin at scores_of(part).
  Tile part(Range part) const { return {begin + part.begin, part.size(), first_key, keys, window}; }
  std::int64_t scores_of(Range part) const { return part.begin * keys; }
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

/// sums[key] += sum over the rows of weights[row, key] * rows[row], for some of the tile's keys.
void add_to_keys(Gemm gemm, const Tile& tile, const AttentionShape& shape, Range part,
                 const float* weights, ConstMatrix rows, float* sums) {
  gemm(part.size(), shape.head_dim, tile.rows, 1.0F,
       {weights + part.begin, tile.keys, Transpose::Yes}, rows, 1.0F,
       sums + part.begin * shape.key_value_stride, shape.key_value_stride);
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

void zero_rows(float* rows, Range range, std::int64_t width, std::int64_t stride) {
  for (std::int64_t row = range.begin; row < range.end; ++row)
    std::fill_n(rows + row * stride, width, 0.0F);
}

/// About how many products q k there are, in elements of other kernels.
std::int64_t work_of(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.time * shape.head_dim;
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

// The workers split the rows of every tile. They meet at its end, because the next one lays its
// scores out otherwise.
void attention(Gemm gemm, const float* q, const float* k, const float* v, float* out, float* lse,
               float* workspace, const AttentionShape& shape) {
  const std::int64_t out_stride = shape.heads * shape.head_dim;
  const auto rows_of_tile = [&](const HeadOffsets& head, const Tile& whole, Range rows) {
    const Tile tile = whole.part(rows);
    float* scores = workspace + whole.scores_of(rows);
    const float* queries = q + head.query + tile.begin * shape.query_stride;
    multiply_pairs(gemm, tile, shape, shape.scale, {queries, shape.query_stride},
                   k + head.key_value, scores);
    softmax(tile, scores, lse + head.lse + tile.begin);
    mix_values(gemm, tile, shape, scores, v + head.key_value,
               out + head.out + tile.begin * out_stride, out_stride);
  };
  in_parallel(work_of(shape), [&](Worker worker) {
    for_each_head(shape, [&](const HeadOffsets& head) {
      for_each_tile(shape, [&](const Tile& tile) {
        const Range rows = worker.part_of(0, tile.rows);
        if (rows.size() > 0) rows_of_tile(head, tile, rows);
        worker.meet();
      });
    });
  });
}

// For every tile the workers split its rows, which give the gradients of probabilities and queries,
// and then its keys, to whose gradients all rows add.
void attention_backward(Gemm gemm, const float* grad_out, const float* q, const float* k,
                        const float* v, const float* out, const float* lse, float* grad_q,
                        float* grad_k, float* grad_v, float* workspace,
                        const AttentionShape& shape) {
  const std::int64_t out_stride = shape.heads * shape.head_dim;
  float* const probabilities = workspace;
  float* const gradients = workspace + attention_tile_elems(shape.time, shape.block_rows);

  const auto rows_of_tile = [&](const HeadOffsets& head, const Tile& whole, Range rows) {
    const Tile tile = whole.part(rows);
    const std::int64_t query = head.query + tile.begin * shape.query_stride;
    const std::int64_t row = head.out + tile.begin * out_stride;
    float* p = probabilities + whole.scores_of(rows);
    float* grad = gradients + whole.scores_of(rows);
    multiply_pairs(gemm, tile, shape, shape.scale, {q + query, shape.query_stride},
                   k + head.key_value, p);
    softmax_again(tile, p, lse + head.lse + tile.begin);
    multiply_pairs(gemm, tile, shape, 1.0F, {grad_out + row, out_stride}, v + head.key_value, grad);
    softmax_backward(tile, shape, p, grad_out + row, out + row, grad);
    mix_values(gemm, tile, shape, grad, k + head.key_value, grad_q + query, shape.query_stride);
  };
  const auto keys_of_tile = [&](const HeadOffsets& head, const Tile& tile, Range keys) {
    add_to_keys(gemm, tile, shape, keys, probabilities,
                {grad_out + head.out + tile.begin * out_stride, out_stride},
                grad_v + head.key_value);
    add_to_keys(gemm, tile, shape, keys, gradients,
                {q + head.query + tile.begin * shape.query_stride, shape.query_stride},
                grad_k + head.key_value);
  };
  in_parallel(work_of(shape), [&](Worker worker) {
    // Several query heads and tiles add to the gradients of a key or value.
    const Range tokens = worker.part_of(0, shape.batch * shape.time);
    for (float* sums : {grad_k, grad_v})
      zero_rows(sums, tokens, shape.kv_heads * shape.head_dim, shape.key_value_stride);
    for_each_head(shape, [&](const HeadOffsets& head) {
      for_each_tile(shape, [&](const Tile& tile) {
        const Range rows = worker.part_of(0, tile.rows);
        if (rows.size() > 0) rows_of_tile(head, tile, rows);
        worker.meet();
        const Range keys = worker.part_of(tile.first_key, tile.keys, 16);
        if (keys.size() > 0) keys_of_tile(head, tile, keys);
        worker.meet();
      });
    });
  });
}

}  // namespace shardplan::cpu
