#pragma once

#include <cstdint>
#include <limits>

namespace shardplan {

/// A count of elements, not negative. Sums and products that do not fit 63 bits stay at the largest
/// number, which no buffer has: sizes from a file can be multiplied and compared without care.
class Extent {
 public:
  // Numbers are extents: formulas mix both.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Extent(std::int64_t value = 0) : value_(value) {}

  constexpr std::int64_t value() const { return value_; }
  bool operator==(const Extent&) const = default;

  friend constexpr Extent operator*(Extent a, Extent b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a.value_, b.value_, &product) ? kLargest : product;
  }
  friend constexpr Extent operator+(Extent a, Extent b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a.value_, b.value_, &sum) ? kLargest : sum;
  }

 private:
  static constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

  std::int64_t value_;
};

}  // namespace shardplan
