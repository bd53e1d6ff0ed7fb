#include <complex>

#include "kernels/kernels.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

constexpr RopeShape kPlain{.batch = 2, .time = 9, .heads = 3, .head_dim = 10, .theta = 10000};

std::int64_t elems(const RopeShape& shape) {
  return shape.batch * shape.time * shape.heads * shape.head_dim;
}

/// Each pair as a complex number, turned by the angle position * frequency(pair).
template <typename Frequency>
Doubles reference(const Floats& x, const RopeShape& shape, Frequency frequency) {
  Doubles out(x.size());
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t row = 0; row < shape.batch * shape.time * shape.heads; ++row)
    for (std::int64_t i = 0; i < half; ++i) {
      const auto position = static_cast<double>(row / shape.heads % shape.time);
      const std::int64_t at = row * shape.head_dim + i;
      const std::complex<double> turned =
          std::complex<double>(x[at], x[at + half]) * std::polar(1.0, position * frequency(i));
      out[at] = turned.real();
      out[at + half] = turned.imag();
    }
  return out;
}

double plain_frequency(std::int64_t pair, const RopeShape& shape) {
  return std::pow(shape.theta,
                  -2.0 * static_cast<double>(pair) / static_cast<double>(shape.head_dim));
}

Floats forward(const Floats& x, const RopeShape& shape) {
  Floats out = stale(std::ssize(x));
  rope(x.data(), out.data(), shape, RopeDirection::Forward);
  return out;
}

TEST(Rope, TurnsTheHalvesByThePosition) {
  const Floats x = random_floats(elems(kPlain), 1);
  expect_close(forward(x, kPlain),
               reference(x, kPlain, [](std::int64_t i) { return plain_frequency(i, kPlain); }));
}

TEST(Rope, HandlesHeadsWiderThanItsTables) {
  const RopeShape wide{.batch = 1, .time = 3, .heads = 1, .head_dim = 200, .theta = 500000};
  const Floats x = random_floats(elems(wide), 2);
  expect_close(forward(x, wide),
               reference(x, wide, [&](std::int64_t i) { return plain_frequency(i, wide); }));
}

TEST(Rope, WorksInPlace) {
  const Floats x = random_floats(elems(kPlain), 3);
  Floats in_place = x;
  rope(in_place.data(), in_place.data(), kPlain, RopeDirection::Forward);
  EXPECT_EQ(in_place, forward(x, kPlain));
}

TEST(Rope, BackwardTurnsBack) {
  const Floats x = random_floats(elems(kPlain), 4);
  const Floats turned = forward(x, kPlain);
  Floats back = stale(std::ssize(x));
  rope(turned.data(), back.data(), kPlain, RopeDirection::Backward);
  expect_close(back, widen(x));
}

TEST(Rope, LinearScalingStretchesPositions) {
  RopeShape shape = kPlain;
  shape.factor = 4;
  const Floats x = random_floats(elems(shape), 5);
  expect_close(forward(x, shape),
               reference(x, shape, [&](std::int64_t i) { return plain_frequency(i, shape) / 4; }));
}

TEST(Rope, Llama3ScalingLeavesShortWavesAndStretchesLongOnes) {
  // Llama 3.1's own numbers: its 64 pairs fall into all three ranges.
  const RopeShape shape{.batch = 1,
                        .time = 40,
                        .heads = 1,
                        .head_dim = 128,
                        .theta = 500000,
                        .factor = 8,
                        .low_frequency = 1,
                        .high_frequency = 4,
                        .original_context = 8192};
  int kept = 0, mixed = 0, stretched = 0;
  const auto scaled = [&](std::int64_t pair) {
    const double plain = plain_frequency(pair, shape);
    const double turns = 8192 * plain / (2 * 3.14159265358979323846);
    if (turns > 4) return ++kept, plain;
    if (turns < 1) return ++stretched, plain / 8;
    const double smooth = (turns - 1) / 3;
    return ++mixed, (1 - smooth) * plain / 8 + smooth * plain;
  };
  const Floats x = random_floats(elems(shape), 6);
  expect_close(forward(x, shape), reference(x, shape, scaled), 5e-6);
  EXPECT_GT(kept, 0);
  EXPECT_GT(mixed, 0);
  EXPECT_GT(stretched, 0);
}

}  // namespace
}  // namespace shardplan::cpu
