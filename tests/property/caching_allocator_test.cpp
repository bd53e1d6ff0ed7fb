#include "simulator/caching_allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

namespace shardplan {
namespace {

constexpr Bytes kMiB = 1 << 20;

CachingAllocatorOptions any_options() {
  CachingAllocatorOptions options;
  options.expandable_segments = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>())
    options.max_split_size = *rc::gen::inRange<Bytes>(20, 200) * kMiB;
  if (*rc::gen::arbitrary<bool>()) options.limit = *rc::gen::inRange<Bytes>(100, 1000) * kMiB;
  if (*rc::gen::arbitrary<bool>())
    options.roundup_power2_divisions = {*rc::gen::element<std::int64_t>(2, 8, 32)};
  options.garbage_collection_threshold = *rc::gen::element(0.0, 0.3, 0.8);
  return options;
}

Bytes any_size() {
  return *rc::gen::oneOf(rc::gen::inRange<Bytes>(1, 2 * kMiB),
                         rc::gen::inRange<Bytes>(1, 150 * kMiB));
}

/// What must hold after every call.
void check_state(const CachingAllocator& allocator, const std::map<int, Bytes>& alive,
                 const CachingAllocatorOptions& options) {
  std::map<std::pair<int, Bytes>, Bytes> places;
  Bytes requested = 0;
  Bytes allocated = 0;
  for (const auto& [block, bytes] : alive) {
    const auto placed = allocator.placement(block);
    RC_ASSERT(placed.bytes >= bytes);
    RC_ASSERT(places.emplace(std::pair(placed.segment, placed.at), placed.bytes).second);
    requested += bytes;
    allocated += placed.bytes;
  }
  for (auto place = places.begin(); place != places.end(); ++place) {
    const auto next = std::next(place);
    if (next != places.end() && next->first.first == place->first.first)
      RC_ASSERT(place->first.second + place->second <= next->first.second);
  }
  const AllocatorUse& use = allocator.use();
  RC_ASSERT(use.requested == requested);
  RC_ASSERT(use.allocated == allocated);
  RC_ASSERT(use.active >= use.allocated);
  RC_ASSERT(use.reserved >= use.active);
  RC_ASSERT(use.reserved <= options.limit);
  RC_ASSERT(use.inactive_split >= 0 && use.inactive_split <= use.reserved - use.active);
}

RC_GTEST_PROP(CachingAllocator, BlocksNeverOverlapAndFiguresAddUp, ()) {
  const CachingAllocatorOptions options = any_options();
  CachingAllocator allocator(options);
  std::map<int, Bytes> alive;
  const int calls = *rc::gen::inRange(1, 120);
  for (int call = 0; call < calls; ++call) {
    const int choice = *rc::gen::inRange(0, 20);
    if (choice == 0) {
      allocator.empty_cache();
    } else if (choice < 9 && !alive.empty()) {
      const auto freed = std::next(alive.begin(), *rc::gen::inRange<std::size_t>(0, alive.size()));
      if (*rc::gen::arbitrary<bool>())
        allocator.release(freed->first);
      else
        allocator.release_after(freed->first, call + *rc::gen::inRange(0, 10));
      alive.erase(freed);
    } else {
      const Bytes bytes = any_size();
      const auto block = allocator.allocate(bytes, *rc::gen::inRange(0, 3), call);
      if (block) RC_ASSERT(alive.emplace(*block, bytes).second);
    }
    check_state(allocator, alive, options);
  }
  for (const auto& [block, bytes] : alive)
    allocator.release(block);
  allocator.empty_cache();
  RC_ASSERT(allocator.use().reserved == 0);
  RC_ASSERT(allocator.use().segments == 0);
  RC_ASSERT(allocator.use().inactive_split == 0);
}

}  // namespace
}  // namespace shardplan
