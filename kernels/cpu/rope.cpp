#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

/// Angle per position of pair `pair`, by the formulas of transformers' modeling_rope_utils.py
/// (_compute_default_rope_parameters, _compute_linear_..., _compute_llama3_...).
float frequency(std::int64_t pair, const RopeShape& shape) {
  const auto factor = static_cast<float>(shape.factor);
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(shape.head_dim);
  const float plain = 1.0F / std::pow(static_cast<float>(shape.theta), exponent);
  if (shape.original_context <= 0) return plain / factor;

  const auto context = static_cast<float>(shape.original_context);
  const auto low = static_cast<float>(shape.low_frequency);
  const auto high = static_cast<float>(shape.high_frequency);
  const float wavelength = 2 * std::numbers::pi_v<float> / plain;
  if (wavelength < context / high) return plain;
  if (wavelength > context / low) return plain / factor;
  const float smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * plain / factor + smooth * plain;
}

/// Rotates pairs (x[i], x[half + i]) for i in [0, pairs).
void rotate(const float* x, float* out, std::int64_t half, std::int64_t pairs, const float* cosine,
            const float* sine) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float first = x[i];
    const float second = x[half + i];
    out[i] = first * cosine[i] - second * sine[i];
    out[half + i] = second * cosine[i] + first * sine[i];
  }
}

}  // namespace

void rope(const float* x, float* out, const RopeShape& shape, RopeDirection direction) {
  constexpr std::int64_t kBlock = 64;  // pairs whose tables fit on the stack
  const std::int64_t half = shape.head_dim / 2;
  const float sign = direction == RopeDirection::Forward ? 1.0F : -1.0F;
  for (std::int64_t begin = 0; begin < half; begin += kBlock) {
    const std::int64_t pairs = std::min(kBlock, half - begin);
    std::array<float, kBlock> frequencies;
    for (std::int64_t i = 0; i < pairs; ++i)
      frequencies[i] = frequency(begin + i, shape);
    for (std::int64_t t = 0; t < shape.time; ++t) {
      std::array<float, kBlock> cosine;
      std::array<float, kBlock> sine;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const float angle = static_cast<float>(t) * frequencies[i];
        cosine[i] = std::cos(angle);
        sine[i] = sign * std::sin(angle);
      }
      for (std::int64_t b = 0; b < shape.batch; ++b)
        for (std::int64_t head = 0; head < shape.heads; ++head) {
          const std::int64_t at =
              ((b * shape.time + t) * shape.heads + head) * shape.head_dim + begin;
          rotate(x + at, out + at, half, pairs, cosine.data(), sine.data());
        }
    }
  }
}

}  // namespace shardplan::cpu
