#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace shardplan::cpu {

/// e^x for x <= 88, within 1 ulp; NaN stays NaN, and what is below the smallest normal number is 0.
/// Unlike std::exp it has no branches, so loops over it are vectorised, and it gives the same bits
/// on every machine.
inline float exponential(float x) {
  // e^x = 2^n e^r with |r| <= ln(2) / 2. Adding 1.5 x 2^23 rounds to the nearest integer and leaves
  // it in the low bits.
  constexpr float kRounder = 12582912.0F;
  const float rounded = x * 1.44269504F + kRounder;
  const float n = rounded - kRounder;
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
  const std::uint32_t n_as_exponent = std::bit_cast<std::uint32_t>(rounded) << 23;
  const auto power = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + n_as_exponent);
  return x < -87.33F ? 0.0F : power;
}

/// Both to full relative precision, which a difference from 1 would lose.
struct Sigmoid {
  float value;       // 1 / (1 + e^-x)
  float complement;  // 1 - value
};

inline Sigmoid sigmoid(float x) {
  const float e = exponential(-std::abs(x));
  const float larger = 1.0F / (1.0F + e);
  const float smaller = e * larger;
  return x > 0.0F ? Sigmoid{larger, smaller} : Sigmoid{smaller, larger};
}

}  // namespace shardplan::cpu
