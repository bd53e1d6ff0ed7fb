#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace shardplan::cpu {

/// Elements below which a kernel stays on its own thread: at a few bytes a cycle they take about as
/// long as waking the other threads of a pool.
inline constexpr std::int64_t kParallelElems = 1 << 15;

struct Range {
  std::int64_t begin;
  std::int64_t end;

  std::int64_t size() const { return end - begin; }
};

/// One of the threads that run a kernel together.
struct Worker {
  std::int64_t index = 0;
  std::int64_t count = 1;

  /// This worker's part of [begin, end); parts begin at multiples of `unit` from `begin` on.
  Range part_of(std::int64_t begin, std::int64_t end, std::int64_t unit = 1) const {
    const std::int64_t units = (end - begin + unit - 1) / unit;
    const auto bound = [&](std::int64_t i) {
      return std::min(end, begin + units * i / count * unit);
    };
    return {bound(index), bound(index + 1)};
  }
  /// Blocks until all workers are here.
  void meet() const {
    if (count == 1) return;
#pragma omp barrier
  }
};

/// Calls body(worker) on every thread of the caller's OpenMP pool, or on the calling one alone when
/// there is little to do: `elems` elements. The result must not depend on how many there are, and
/// `body` must not throw.
template <typename Body>
void in_parallel(std::int64_t elems, Body body) {
  if (omp_get_max_threads() == 1 || omp_in_parallel() != 0 || elems < kParallelElems) {
    body(Worker{});
    return;
  }
#pragma omp parallel
  body(Worker{omp_get_thread_num(), omp_get_num_threads()});
}

/// Calls body(begin, end) for ranges that make up [0, count), in parallel. `weight`: elements that
/// one index stands for.
template <typename Body>
void parallel_ranges(std::int64_t count, std::int64_t weight, Body body) {
  const std::int64_t unit = weight == 1 ? 16 : 1;  // no two threads share a cache line
  in_parallel(count * weight, [&](Worker worker) {
    const auto [begin, end] = worker.part_of(0, count, unit);
    if (begin < end) body(begin, end);
  });
}

/// Sum of sum_of(begin, end) over ranges that make up [0, count) and depend on `count` alone.
template <typename SumOf>
double parallel_sum(std::int64_t count, std::int64_t weight, SumOf sum_of) {
  constexpr std::int64_t kParts = 64;
  std::array<double, kParts> parts;
  parallel_ranges(kParts, count * weight / kParts + 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part)
      parts[part] = sum_of(count * part / kParts, count * (part + 1) / kParts);
  });
  double sum = 0;
  for (const double part : parts)
    sum += part;
  return sum;
}

}  // namespace shardplan::cpu
