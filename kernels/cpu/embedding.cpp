#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"
#include "plans/error.h"

namespace shardplan::cpu {
namespace {

/// The first place of `token` in tokens[from, rows), or `rows`.
SHARDPLAN_CLONE_FOR_AVX2
std::int64_t next_row(const std::int32_t* tokens, std::int64_t from, std::int64_t rows,
                      std::int32_t token) {
  constexpr std::int64_t kBlock = 64;  // compared without a branch each
  for (; from + kBlock <= rows; from += kBlock) {
    bool found = false;
    for (std::int64_t i = 0; i < kBlock; ++i)
      found |= tokens[from + i] == token;
    if (found) break;
  }
  return std::find(tokens + from, tokens + rows, token) - tokens;
}

/// Adds the rows of one token, which are `first` and later ones, to its row of the gradient.
void add_rows_of_token(const float* grad_out, const std::int32_t* tokens, std::int64_t first,
                       std::int64_t rows, std::int64_t channels, float* grad_row) {
  constexpr std::int64_t kBlock = 1024;  // channels, whose sums fit on the stack
  for (std::int64_t begin = 0; begin < channels; begin += kBlock) {
    const std::int64_t width = std::min(kBlock, channels - begin);
    std::array<float, kBlock> sums;
    std::copy_n(grad_out + first * channels + begin, width, sums.begin());
    for (std::int64_t row = first; (row = next_row(tokens, row + 1, rows, tokens[first])) < rows;)
      accumulate(grad_out + row * channels + begin, 1.0F, sums.data(), width);
    accumulate(sums.data(), 1.0F, grad_row + begin, width);
  }
}

}  // namespace

void embedding(const std::int32_t* tokens, const float* weight, float* out, std::int64_t rows,
               std::int64_t vocab, std::int64_t channels) {
  for (std::int64_t row = 0; row < rows; ++row)
    if (tokens[row] < 0 || tokens[row] >= vocab)
      throw InputError(fmt::format("token {} at position {} of the batch: expected 0 to {}",
                                   tokens[row], row, vocab - 1));
  parallel_ranges(rows, channels, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      std::copy_n(weight + tokens[row] * channels, channels, out + row * channels);
  });
}

// The rows of a token are summed before they are added to what is there, so that two micro-steps
// give the bits that two ranks give.
void embedding_backward(const float* grad_out, const std::int32_t* tokens, float* grad_weight,
                        std::int64_t rows, std::int64_t vocab, std::int64_t channels, Store store) {
  if (store == Store::Overwrite)
    parallel_ranges(vocab, channels, [=](std::int64_t begin, std::int64_t end) {
      std::fill(grad_weight + begin * channels, grad_weight + end * channels, 0.0F);
    });
  for (std::int64_t row = 0; row < rows; ++row)
    check(tokens[row] >= 0 && tokens[row] < vocab, "forward has seen every token");
  parallel_ranges(rows, channels, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      if (next_row(tokens, 0, row, tokens[row]) == row)
        add_rows_of_token(grad_out, tokens, row, rows, channels,
                          grad_weight + tokens[row] * channels);
  });
}

void position_embedding(const float* x, const float* weight, float* out, std::int64_t batch,
                        std::int64_t time, std::int64_t channels) {
  const std::int64_t sequence = time * channels;
  for (std::int64_t b = 0; b < batch; ++b)
    add(x + b * sequence, weight, out + b * sequence, sequence);
}

void position_embedding_backward(const float* grad_out, float* grad_weight, std::int64_t batch,
                                 std::int64_t time, std::int64_t positions, std::int64_t channels,
                                 Store store) {
  const std::int64_t sequence = time * channels;
  sum_rows(grad_out, grad_weight, batch, sequence, store);
  if (store == Store::Overwrite)
    std::fill(grad_weight + sequence, grad_weight + positions * channels, 0.0F);
}

}  // namespace shardplan::cpu
