#include "runtime/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardplan {
namespace {

/// One step of SplitMix64 (Steele, Lea and Flood 2014), used as a hash of a counter.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t stream_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = mix(seed);
  for (const char letter : name)
    hash = mix(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

/// Standard normal, by Box and Muller from the two halves of one 64-bit hash.
double normal(std::uint64_t bits) {
  const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;  // in (0, 1)
  const double v = static_cast<double>(bits & 0xffffffffu) * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

void initial_values(const Initializer& initializer, std::uint64_t seed, std::string_view name,
                    std::int64_t first, std::span<float> out) {
  switch (initializer.kind) {
    case Initializer::Kind::Ones: std::ranges::fill(out, 1.0f); return;
    case Initializer::Kind::Zeros: std::ranges::fill(out, 0.0f); return;
    case Initializer::Kind::Normal: break;
  }
  const std::uint64_t stream = stream_of(seed, name);
  constexpr std::size_t kWorthThreads = std::size_t{1} << 20;  // 25 ms of one
#pragma omp parallel for if (out.size() >= kWorthThreads)
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t index = static_cast<std::uint64_t>(first) + i;
    out[i] = static_cast<float>(initializer.standard_deviation * normal(mix(stream ^ mix(index))));
  }
}

}  // namespace shardplan
