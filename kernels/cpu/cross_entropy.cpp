#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/arithmetic.h"
#include "kernels/cpu/clones.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"
#include "plans/error.h"

namespace shardplan::cpu {
namespace {

std::int64_t counted_rows(const std::int32_t* targets, std::int64_t rows, std::int64_t vocab) {
  std::int64_t counted = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == kIgnoredTarget) continue;
    if (targets[row] < 0 || targets[row] >= vocab)
      throw InputError(fmt::format("target {} at position {} of the batch: expected 0 to {}, or {}",
                                   targets[row], row, vocab - 1, kIgnoredTarget));
    ++counted;
  }
  return counted;
}

/// Returns -log softmax(logits)[target]; gradient = (softmax - one-hot) * scale, over the logits
/// where they are the same.
SHARDPLAN_CLONE_FOR_AVX2
double row_loss(const float* logits, std::int32_t target, float* gradient, std::int64_t vocab,
                double scale) {
  const float largest = lane_max(logits, vocab);
  const double target_logit = logits[target];
  for (std::int64_t i = 0; i < vocab; ++i)
    gradient[i] = exponential(logits[i] - largest);
  const double sum = lane_sum(vocab, [=](std::int64_t i) { return gradient[i]; });
  const double target_probability = gradient[target] / sum;
  const auto factor = static_cast<float>(scale / sum);
  for (std::int64_t i = 0; i < vocab; ++i)
    gradient[i] *= factor;
  gradient[target] = static_cast<float>((target_probability - 1) * scale);
  return std::log(sum) + (largest - target_logit);
}

}  // namespace

void cross_entropy(const float* logits, const std::int32_t* targets, double* loss,
                   float* grad_logits, const LogitsShape& shape, double scale, Store store_loss) {
  const auto counted = static_cast<double>(counted_rows(targets, shape.all, shape.vocab));
  const auto sum_of = [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int32_t target = targets[shape.first + row];
      float* gradient = grad_logits + row * shape.vocab;
      if (target == kIgnoredTarget)
        std::fill_n(gradient, shape.vocab, 0.0F);
      else
        sum += row_loss(logits + row * shape.vocab, target, gradient, shape.vocab, scale / counted);
    }
    return sum;
  };
  const double sum = parallel_sum(shape.rows, shape.vocab, sum_of);
  *loss = (store_loss == Store::Accumulate ? *loss : 0.0) + scale * (sum / counted);
}

}  // namespace shardplan::cpu
