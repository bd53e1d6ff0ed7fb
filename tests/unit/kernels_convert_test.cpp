#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

float through_bfloat16(float x) { return widened(rounded(x)); }

TEST(BFloat16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(through_bfloat16(1.0F), 1.0F);
  EXPECT_EQ(through_bfloat16(-3.140625F), -3.140625F);  // 8 significant bits
  const float step = std::ldexp(1.0F, -7);              // of the numbers from 1 on
  EXPECT_EQ(through_bfloat16(1 + 0.51F * step), 1 + step);
  EXPECT_EQ(through_bfloat16(1 + 0.49F * step), 1.0F);
  EXPECT_EQ(through_bfloat16(1 + 0.5F * step), 1.0F);
  EXPECT_EQ(through_bfloat16(1 + 1.5F * step), 1 + 2 * step);
}

TEST(BFloat16, KeepsWhatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(through_bfloat16(infinity), infinity);
  EXPECT_EQ(through_bfloat16(std::numeric_limits<float>::max()), infinity);
  EXPECT_TRUE(std::isnan(through_bfloat16(std::bit_cast<float>(0x7f800001))));
}

TEST(Convert, EveryBFloat16ComesBack) {
  std::vector<BFloat16> all;
  for (int bits = 0; bits < 1 << 16; ++bits)
    if (!std::isnan(widened(BFloat16{static_cast<std::uint16_t>(bits)})))
      all.push_back(BFloat16{static_cast<std::uint16_t>(bits)});
  std::vector<float> wide(all.size());
  std::vector<BFloat16> back(all.size());
  widen(all.data(), wide.data(), std::ssize(all));
  narrow(wide.data(), back.data(), std::ssize(all));
  EXPECT_EQ(back, all);
}

TEST(Add, OfDifferentDtypesRoundsOnce) {
  constexpr std::int64_t kElems = 3000;  // more than a block
  std::vector<float> sum(kElems);
  std::vector<BFloat16> summand(kElems);
  for (std::int64_t i = 0; i < kElems; ++i) {
    sum[i] = static_cast<float>(i) / 1024;
    summand[i] = rounded(1.0F / static_cast<float>(i + 1));
  }
  std::vector<BFloat16> narrow_sum(kElems);
  add(sum.data(), summand.data(), narrow_sum.data(), kElems);
  add(sum.data(), summand.data(), sum.data(), kElems);
  for (std::int64_t i = 0; i < kElems; ++i) {
    EXPECT_EQ(sum[i], static_cast<float>(i) / 1024 + widened(summand[i]));
    EXPECT_EQ(narrow_sum[i], rounded(sum[i]));
  }
}

TEST(Scale, MultipliesInPlace) {
  std::vector<float> x{1, -2, 0.5F};
  scale(x.data(), 4, x.data(), 3);
  EXPECT_EQ(x, (std::vector<float>{4, -8, 2}));
}

}  // namespace
}  // namespace shardplan::cpu
