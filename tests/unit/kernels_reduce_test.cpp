#include "kernels/cpu/reduce.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

TEST(SumSquares, KeepsTheDigitsOfManySmallNumbers) {
  // In single precision the sum stops growing long before the end.
  const Floats x(3'000'001, 0.01F);
  EXPECT_NEAR(sum_squares(x.data(), x.size()) / (3'000'001 * std::pow(0.01F, 2.0)), 1, 1e-12);
}

TEST(SumSquares, TakesEveryElementOfAnySize) {
  for (std::int64_t size = 0; size < 40; ++size) {
    const Floats x = random_floats(size, 1);
    double expected = 0;
    for (const double value : x)
      expected += value * value;
    EXPECT_NEAR(sum_squares(x.data(), size), expected, 1e-12 * expected);
  }
}

TEST(LaneMax, FindsTheLargestAtAnyPlace) {
  for (std::int64_t size = 1; size < 40; ++size)
    for (std::int64_t at = 0; at < size; ++at) {
      Floats x = random_floats(size, 2);
      x[at] = 100.0F;
      EXPECT_EQ(lane_max(x.data(), size), 100.0F);
    }
}

TEST(ColumnSums, RoundOnce) {
  // 1 + 2^-24 rounds back to 1 in single precision, every time.
  const std::int64_t rows = 1 << 12;
  float out = 1.0F;
  column_sums(rows, 0, 1, &out, Store::Accumulate,
              [](std::int64_t, std::int64_t) { return std::ldexp(1.0, -24); });
  EXPECT_EQ(out, 1.0F + std::ldexp(1.0F, -12));
}

TEST(ColumnSums, CoverMoreColumnsThanOneBlock) {
  Floats out = stale(1000);
  column_sums(3, 0, 1000, out.data(), Store::Overwrite, [](std::int64_t row, std::int64_t column) {
    return static_cast<double>(row * 1000 + column);
  });
  for (int column = 0; column < 1000; ++column)
    ASSERT_EQ(out[column], static_cast<float>(3000 + 3 * column));
}

TEST(Add, MayOverwriteEitherSide) {
  const Floats a{1.0F, 2.0F, 3.0F};
  const Floats b{10.0F, 20.0F, 30.0F};
  const Floats expected{11.0F, 22.0F, 33.0F};
  Floats over_a = a;
  add(over_a.data(), b.data(), over_a.data(), 3);
  EXPECT_EQ(over_a, expected);
  Floats over_b = b;
  add(a.data(), over_b.data(), over_b.data(), 3);
  EXPECT_EQ(over_b, expected);
}

TEST(Accumulate, AddsScaledElements) {
  const Floats x{1.0F, 2.0F, 3.0F};
  Floats out{10.0F, 20.0F, 30.0F};
  accumulate(x.data(), 0.5F, out.data(), 3);
  EXPECT_EQ(out, (Floats{10.5F, 21.0F, 31.5F}));
}

}  // namespace
}  // namespace shardplan::cpu
