#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

/// What the kernel tests share: seeded inputs, and references in double precision, whose gradients
/// are taken by central differences.
namespace shardplan::cpu {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/// Normally distributed, the same for a seed on every machine.
inline Floats random_floats(std::int64_t count, unsigned seed, float deviation = 1.0F) {
  std::mt19937 bits(seed);
  Floats values(count);
  for (float& value : values) {
    // Sum of twelve uniforms; std::normal_distribution differs between standard libraries.
    double sum = -6;
    for (int i = 0; i < 12; ++i)
      sum += static_cast<double>(bits()) / 4294967296.0;
    value = static_cast<float>(sum) * deviation;
  }
  return values;
}

/// Memory that nobody may read before it is written: one NaN makes every sum a NaN.
inline Floats stale(std::int64_t count) {
  return Floats(count, std::numeric_limits<float>::quiet_NaN());
}

inline Doubles widen(const Floats& values) { return {values.begin(), values.end()}; }

inline double dot(const Doubles& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

/// Gradient of function(x) by central differences.
template <typename Function>
Doubles numeric_gradient(Function function, Doubles x) {
  constexpr double kStep = 1e-5;
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double center = x[i];
    x[i] = center + kStep;
    const double above = function(x);
    x[i] = center - kStep;
    gradient[i] = (above - function(x)) / (2 * kStep);
    x[i] = center;
  }
  return gradient;
}

/// The largest difference is at most `tolerance` times the largest expected value.
inline void expect_close(const Floats& actual, const Doubles& expected, double tolerance = 2e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = std::numeric_limits<double>::min();
  for (const double value : expected)
    largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << "at element " << i;
}

inline Doubles sum(Doubles a, const Floats& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

}  // namespace shardplan::cpu
