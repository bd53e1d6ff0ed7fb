#include "simulator/overlap.h"

#include <algorithm>

namespace shardplan {
namespace {

Seconds common(Interval a, Interval b) {
  return std::max(0.0, std::min(a.end_s, b.end_s) - std::max(a.begin_s, b.begin_s));
}

}  // namespace

Seconds covered(std::span<const Interval> intervals, Interval window) {
  Seconds sum = 0;
  for (const Interval interval : intervals)
    sum += common(interval, window);
  return sum;
}

Seconds overlap(std::span<const Interval> a, std::span<const Interval> b, Interval window) {
  Seconds sum = 0;
  std::size_t j = 0;
  for (Interval interval : a) {
    interval = {std::max(interval.begin_s, window.begin_s), std::min(interval.end_s, window.end_s)};
    while (j < b.size() && b[j].end_s <= interval.begin_s)
      ++j;
    // The last one that reaches into this interval may reach into the next one too.
    for (std::size_t k = j; k < b.size() && b[k].begin_s < interval.end_s; ++k)
      sum += common(interval, b[k]);
  }
  return sum;
}

}  // namespace shardplan
