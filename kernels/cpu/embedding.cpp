#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"
#include "plans/error.h"

namespace shardplan::cpu {

void embedding(const std::int32_t* tokens, const float* weight, float* out, std::int64_t rows,
               std::int64_t vocab, std::int64_t channels) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t token = tokens[row];
    if (token < 0 || token >= vocab)
      throw InputError(fmt::format("token {} at position {} of the batch: expected 0 to {}", token,
                                   row, vocab - 1));
    std::copy_n(weight + token * channels, channels, out + row * channels);
  }
}

void embedding_backward(const float* grad_out, const std::int32_t* tokens, float* grad_weight,
                        std::int64_t rows, std::int64_t vocab, std::int64_t channels, Store store) {
  if (store == Store::Overwrite) std::fill_n(grad_weight, vocab * channels, 0.0F);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t token = tokens[row];
    check(token >= 0 && token < vocab, "forward has seen every token");
    accumulate(grad_out + row * channels, 1.0F, grad_weight + token * channels, channels);
  }
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
  column_sums(batch, sequence, grad_weight, store,
              [=](std::int64_t b, std::int64_t i) { return grad_out[b * sequence + i]; });
  if (store == Store::Overwrite)
    std::fill(grad_weight + sequence, grad_weight + positions * channels, 0.0F);
}

}  // namespace shardplan::cpu
