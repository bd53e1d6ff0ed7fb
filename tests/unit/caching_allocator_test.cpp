#include "simulator/caching_allocator.h"

#include <gtest/gtest.h>

namespace shardplan {
namespace {

constexpr Bytes kMiB = 1 << 20;

CachingAllocator::BlockId block_of(CachingAllocator& allocator, Bytes bytes, int stream = 0) {
  return allocator.allocate(bytes, stream).value();
}

Bytes size_of_request(Bytes bytes, std::vector<std::int64_t> divisions) {
  CachingAllocator allocator({.roundup_power2_divisions = std::move(divisions)});
  return allocator.placement(block_of(allocator, bytes)).bytes;
}

TEST(CachingAllocator, RoundsUpToStepsBetweenPowersOfTwo) {
  EXPECT_EQ(size_of_request(33 * kMiB, {8}), 36 * kMiB);
  EXPECT_EQ(size_of_request(32 * kMiB, {8}), 32 * kMiB);
  EXPECT_EQ(size_of_request(513 * 8, {8}), 4608);
  EXPECT_EQ(size_of_request(4095, {8}), 4096) << "up to 512 B per step, multiples of 512 B";
  EXPECT_EQ(size_of_request(3 * kMiB, {1}), 3 * kMiB);
}

TEST(CachingAllocator, StepsMayDifferBySize) {
  const std::vector<std::int64_t> from_4_mib = {0, 0, 4};
  EXPECT_EQ(size_of_request(3 * kMiB / 2 + 1, from_4_mib), 3 * kMiB / 2 + 512);
  EXPECT_EQ(size_of_request(5 * kMiB + 1, from_4_mib), 6 * kMiB);
  EXPECT_EQ(size_of_request(65 * kMiB, from_4_mib), 80 * kMiB) << "the last entry holds on";
}

TEST(CachingAllocator, NothingIsTakenForNothing) {
  CachingAllocator allocator;
  const auto block = block_of(allocator, 0);
  EXPECT_EQ(block, CachingAllocator::kNoBlock);
  allocator.release(block);
  EXPECT_EQ(allocator.peak().reserved, 0);
}

TEST(CachingAllocator, BlocksAboveMaxSplitSizeAreKeptForLargeRequests) {
  CachingAllocator allocator({.max_split_size = 100 * kMiB});
  allocator.release(block_of(allocator, 200 * kMiB));
  EXPECT_EQ(allocator.placement(block_of(allocator, 60 * kMiB)).segment, 1);
  EXPECT_EQ(allocator.placement(block_of(allocator, 150 * kMiB)).segment, 2) << "50 MiB too many";
  const auto near = allocator.placement(block_of(allocator, 190 * kMiB));
  EXPECT_EQ(near.segment, 0);
  EXPECT_EQ(near.bytes, 200 * kMiB) << "handed out whole";
}

TEST(CachingAllocator, ReturnsCachedSegmentsBeforeItIsOutOfMemory) {
  CachingAllocator allocator({.limit = 100 * kMiB});
  allocator.release(block_of(allocator, 60 * kMiB, 0));
  const auto other = block_of(allocator, 60 * kMiB, 1);
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(allocator.use().reserved, 60 * kMiB);
  EXPECT_EQ(allocator.allocate(60 * kMiB, 0), std::nullopt);
  allocator.release(other);
  EXPECT_TRUE(allocator.allocate(60 * kMiB, 0));
}

TEST(CachingAllocator, ReturnsOversizeBlocksAloneWhenThatIsEnough) {
  CachingAllocator allocator({.max_split_size = 50 * kMiB, .limit = 200 * kMiB});
  allocator.release(block_of(allocator, 20 * kMiB));
  allocator.release(block_of(allocator, 60 * kMiB));
  allocator.release(block_of(allocator, 100 * kMiB));
  EXPECT_TRUE(allocator.allocate(70 * kMiB, 0));
  EXPECT_EQ(allocator.use().reserved, (20 + 60 + 70) * kMiB) << "only the 100 MiB went back";
  EXPECT_EQ(allocator.retries(), 0);
}

TEST(CachingAllocator, CollectsWhatWaitedLongestAboveTheThreshold) {
  CachingAllocator allocator({.garbage_collection_threshold = 0.6, .limit = 200 * kMiB});
  const auto old = block_of(allocator, 40 * kMiB);
  const auto young = block_of(allocator, 50 * kMiB);
  allocator.release(old);
  const auto third = block_of(allocator, 60 * kMiB);
  allocator.release(young);
  allocator.release(third);
  EXPECT_EQ(allocator.use().reserved, 150 * kMiB);
  block_of(allocator, 10 * kMiB, 1);
  EXPECT_EQ(allocator.use().reserved, (50 + 60 + 10) * kMiB) << "the oldest alone";
}

TEST(CachingAllocator, ABlockOfAnotherStreamsWorkIsActiveUntilItIsDone) {
  CachingAllocator allocator;
  allocator.release_after(block_of(allocator, 64 * kMiB), 2.0);
  EXPECT_EQ(allocator.use().allocated, 0);
  EXPECT_EQ(allocator.use().active, 64 * kMiB);
  EXPECT_EQ(allocator.placement(*allocator.allocate(64 * kMiB, 0, 1.0)).segment, 1);
  EXPECT_EQ(allocator.placement(*allocator.allocate(64 * kMiB, 0, 2.0)).segment, 0);
  EXPECT_EQ(allocator.peak().active, 128 * kMiB);
}

TEST(ExpandableSegments, FillHolesBeforeTheyGrow) {
  CachingAllocator allocator({.expandable_segments = true});
  const auto first = block_of(allocator, 50 * kMiB);
  block_of(allocator, 20 * kMiB);
  EXPECT_EQ(allocator.use().reserved, 80 * kMiB) << "pages of 20 MiB: 10 MiB are left at the end";
  allocator.release(first);
  EXPECT_EQ(allocator.placement(block_of(allocator, 8 * kMiB)).at, 0) << "the hole, though larger";
}

TEST(ExpandableSegments, GiveWholePagesBackFromWithin) {
  CachingAllocator allocator({.expandable_segments = true});
  const auto first = block_of(allocator, 50 * kMiB);
  const auto second = block_of(allocator, 50 * kMiB);
  allocator.release(first);
  allocator.empty_cache();
  EXPECT_EQ(allocator.use().reserved, 60 * kMiB)
      << "pages at 0 and 20 MiB went, 40 to 60 is shared";
  EXPECT_EQ(allocator.placement(block_of(allocator, 50 * kMiB)).at, 0);
  EXPECT_EQ(allocator.use().reserved, 100 * kMiB);
  allocator.release(second);
  EXPECT_EQ(allocator.use().segments, 1);
}

TEST(ExpandableSegments, GrowFromTheirFreeEnd) {
  CachingAllocator allocator({.expandable_segments = true, .limit = 120 * kMiB});
  allocator.release(block_of(allocator, 50 * kMiB));
  const auto grown = block_of(allocator, 110 * kMiB);
  EXPECT_EQ(allocator.placement(grown).at, 0);
  EXPECT_EQ(allocator.use().reserved, 120 * kMiB);
  EXPECT_EQ(allocator.allocate(20 * kMiB, 0), std::nullopt);
}

}  // namespace
}  // namespace shardplan
