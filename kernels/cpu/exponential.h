#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace shardplan::cpu {

/// e^x within 1 ulp of the true value, with the limits and NaN of std::exp. Unlike std::exp it has
/// no branches, so loops over it are vectorised, and it gives the same bits on every machine.
inline float exponential(float x) {
  // e^x = 2^n e^r with |r| <= ln(2) / 2. Beyond these limits the result is 0 or infinite anyway.
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  // Adding and taking away 1.5 x 2^23 rounds to the nearest integer.
  constexpr float kRounder = 12582912.0F;
  const float n = (x * 1.44269504F + kRounder) - kRounder;
  // ln(2) in two parts (Cody and Waite): n times the first is exact.
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  // Minimax polynomial of Cephes' expf (S. Moshier).
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  // In two factors, because 2^n alone leaves the range of normal numbers at both ends.
  const auto exponent = static_cast<std::int32_t>(n);
  const std::int32_t half = exponent >> 1;
  const auto power_of_two = [](std::int32_t e) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
  };
  return p * power_of_two(half) * power_of_two(exponent - half);
}

/// Both to full relative precision, which a difference from 1 would lose.
struct Sigmoid {
  float value;       // 1 / (1 + e^-x)
  float complement;  // 1 - value
};

inline Sigmoid sigmoid(float x) {
  const float e = exponential(-std::abs(x));  // never overflows
  const float larger = 1.0F / (1.0F + e);
  const float smaller = e * larger;
  return x > 0.0F ? Sigmoid{larger, smaller} : Sigmoid{smaller, larger};
}

}  // namespace shardplan::cpu
