#include "simulator/caching_allocator.h"

#include <algorithm>
#include <bit>

#include "plans/error.h"

namespace shardplan {
namespace {

// c10/core/AllocatorConfig.h of PyTorch 2.11.
constexpr Bytes kMinBlock = 512;
constexpr Bytes kSmallMax = Bytes{1} << 20;       // larger requests go to the large pool
constexpr Bytes kSmallSegment = Bytes{2} << 20;   // and page of small expandable segments
constexpr Bytes kLargeSegment = Bytes{20} << 20;  // and page of large expandable segments
constexpr Bytes kLargeRequest = Bytes{10} << 20;  // from here on a segment of its own size
constexpr Bytes kLargeRounding = Bytes{2} << 20;  // of such segments
constexpr Bytes kAddressSpace = Bytes{1} << 50;   // of an expandable segment: more than any GPU
constexpr Bytes kFirstDivision = Bytes{1} << 20;  // size of roundup_power2_divisions' first entry
constexpr Seconds kForever = std::numeric_limits<Seconds>::infinity();

}  // namespace

std::optional<CachingAllocator::BlockId> CachingAllocator::allocate(Bytes bytes, int stream,
                                                                    Seconds now) {
  if (bytes == 0) return kNoBlock;
  release_finished(now);
  const Bytes size = rounded(bytes);
  const PoolKey key{size <= kSmallMax, stream};
  int block = find_free(key, size);
  if (block < 0) block = obtain(key, size);
  if (block < 0) return std::nullopt;
  split(block, size);
  blocks_[block].state = State::Allocated;
  blocks_[block].requested = bytes;
  use_.requested += bytes;
  use_.allocated += blocks_[block].size;
  use_.active += blocks_[block].size;
  note_peak();
  return block;
}

void CachingAllocator::release(BlockId block) {
  release_after(block, -kForever);
  release_finished(-kForever);
}

void CachingAllocator::release_after(BlockId block, Seconds reusable_at) {
  if (block == kNoBlock) return;
  Block& freed = blocks_[block];
  check(freed.state == State::Allocated, "a block is released once");
  use_.requested -= freed.requested;
  use_.allocated -= freed.size;
  freed.state = State::Pending;
  pending_.emplace(reusable_at, block);
}

void CachingAllocator::release_finished(Seconds now) {
  while (!pending_.empty() && pending_.begin()->first <= now) {
    const int block = pending_.begin()->second;
    pending_.erase(pending_.begin());
    use_.active -= blocks_[block].size;
    set_free(merge(block));
  }
  note_peak();
}

void CachingAllocator::empty_cache() {
  release_finished(kForever);
  return_cached();
}

CachingAllocator::Placement CachingAllocator::placement(BlockId block) const {
  const Block& of = blocks_[block];
  return {of.segment, of.at, of.size, segments_[of.segment].small};
}

Bytes CachingAllocator::rounded(Bytes bytes) const {
  const auto& divisions_of = options_.roundup_power2_divisions;
  if (!divisions_of.empty()) {
    const auto power = std::bit_width(static_cast<std::uint64_t>(bytes)) -
                       std::bit_width(static_cast<std::uint64_t>(kFirstDivision));
    const auto last = static_cast<int>(divisions_of.size()) - 1;
    const std::int64_t divisions = divisions_of[std::clamp(static_cast<int>(power), 0, last)];
    if (divisions > 1 && bytes > kMinBlock * divisions) {
      const auto floor = static_cast<Bytes>(std::bit_floor(static_cast<std::uint64_t>(bytes)));
      return round_up(bytes, floor / divisions);
    }
  }
  return round_up(bytes, kMinBlock);
}

Bytes CachingAllocator::page_of(const PoolKey& key) const {
  return key.small ? kSmallSegment : kLargeSegment;
}

/// A free block of the pool, taken out of it; -1: none fits.
int CachingAllocator::find_free(const PoolKey& key, Bytes size) {
  ++searches_[key.small];
  const Pool& pool = pools_[key];
  const auto found = best_fit(pool, size);
  if (found == pool.free.end()) return -1;
  // Large blocks are kept for large requests, and those get no block much larger than they are.
  if (size < options_.max_split_size && found->size >= options_.max_split_size) return -1;
  if (size >= options_.max_split_size && found->size >= size + options_.max_non_split_rounding)
    return -1;
  const int block = found->block;
  take(block);
  return block;
}

/// The smallest block that is large enough. One that can grow counts with the size that it can grow
/// to, so that holes are filled first.
std::set<CachingAllocator::Fit>::const_iterator CachingAllocator::best_fit(const Pool& pool,
                                                                           Bytes size) const {
  auto found = pool.free.lower_bound(Fit{size, -1, -1, -1});
  if (!options_.expandable_segments || found == pool.free.end()) return found;
  const auto grown = [&](const Fit& fit) {
    const int next = blocks_[fit.block].next;
    const bool grows = next >= 0 && blocks_[next].state == State::Unmapped;
    return fit.size + (grows ? blocks_[next].size : 0);
  };
  for (auto next = std::next(found); next != pool.free.end() && grown(*next) < grown(*found);
       ++next)
    found = next;
  return found;
}

/// Memory that no free block gives: from the driver, if need be after cached memory went back to
/// it.
int CachingAllocator::obtain(const PoolKey& key, Bytes size) {
  collect_garbage();
  int block = new_memory(key, size);
  if (block < 0 && release_oversize(key, size)) block = new_memory(key, size);
  if (block < 0) {
    ++retries_;
    empty_cache();
    block = new_memory(key, size);
  }
  return block;
}

int CachingAllocator::new_memory(const PoolKey& key, Bytes size) {
  return options_.expandable_segments ? grow(key, size) : new_segment(key, size);
}

int CachingAllocator::new_segment(const PoolKey& key, Bytes size) {
  Bytes bytes = kSmallSegment;
  if (!key.small) bytes = size < kLargeRequest ? kLargeSegment : round_up(size, kLargeRounding);
  if (bytes > options_.limit - use_.reserved) return -1;
  const int block = add_segment(key, bytes, State::Free);
  mapped_.back() = bytes;
  use_.reserved += bytes;
  ++use_.segments;
  return block;
}

int CachingAllocator::add_segment(const PoolKey& key, Bytes size, State state) {
  segments_.push_back(key);
  mapped_.push_back(0);
  Block block;
  block.segment = static_cast<int>(segments_.size()) - 1;
  block.size = size;
  block.state = state;
  return new_block(block);
}

/// A block of at least `size` at the first place of an expandable segment that has no block in its
/// way; pages are mapped as needed.
int CachingAllocator::grow(const PoolKey& key, Bytes size) {
  int block = place_to_grow(key, size);
  while (blocks_[block].state == State::Unmapped || blocks_[block].size < size) {
    const bool starts_here = blocks_[block].state == State::Unmapped;
    const int unmapped = starts_here ? block : blocks_[block].next;
    const Bytes missing = size - (starts_here ? 0 : blocks_[block].size);
    block = map(unmapped, std::min(missing, blocks_[unmapped].size));
    if (block < 0) return -1;
  }
  take(block);
  return block;
}

int CachingAllocator::place_to_grow(const PoolKey& key, Bytes size) {
  for (const Fit& fit : pools_[key].unmapped) {
    const int previous = blocks_[fit.block].previous;
    const bool from_previous = previous >= 0 && blocks_[previous].state == State::Free;
    const int start = from_previous ? previous : fit.block;
    if (can_grow(start, size)) return start;
  }
  const int space = add_segment(key, kAddressSpace, State::Unmapped);
  insert(pools_[key].unmapped, space);
  return space;
}

bool CachingAllocator::can_grow(int block, Bytes size) const {
  Bytes available = 0;
  for (; block >= 0 && available < size; block = blocks_[block].next) {
    if (blocks_[block].state != State::Free && blocks_[block].state != State::Unmapped) break;
    available += blocks_[block].size;
  }
  return available >= size;
}

/// Maps whole pages from the begin of an unmapped block on; returns the free block that they are
/// now part of, or -1: the driver has no more.
int CachingAllocator::map(int block, Bytes size) {
  const int segment = blocks_[block].segment;
  const PoolKey key = segments_[segment];
  const Bytes bytes = std::min(round_up(size, page_of(key)), blocks_[block].size);
  if (bytes > options_.limit - use_.reserved) return -1;
  take(block);
  if (bytes < blocks_[block].size) {
    const int rest = split_off(block, bytes);
    blocks_[rest].state = State::Unmapped;
    insert(pools_[key].unmapped, rest);
  }
  if (mapped_[segment] == 0) ++use_.segments;
  mapped_[segment] += bytes;
  use_.reserved += bytes;
  blocks_[block].state = State::Pending;
  block = merge(block);
  set_free(block);
  return block;
}

/// Gives the whole pages inside a free block back.
void CachingAllocator::unmap(int block) {
  const int segment = blocks_[block].segment;
  const PoolKey key = segments_[segment];
  const Bytes page = page_of(key);
  const Bytes begin = round_up(blocks_[block].at, page);
  const Bytes end = (blocks_[block].at + blocks_[block].size) / page * page;
  if (begin >= end) return;
  take(block);
  int middle = block;
  if (begin > blocks_[block].at) {
    middle = split_off(block, begin - blocks_[block].at);
    set_free(block);
  }
  if (end - begin < blocks_[middle].size) set_free(split_off(middle, end - begin));
  mapped_[segment] -= end - begin;
  use_.reserved -= end - begin;
  if (mapped_[segment] == 0) --use_.segments;
  blocks_[middle].state = State::Unmapped;
  for (const int neighbour : {blocks_[middle].next, blocks_[middle].previous}) {
    if (neighbour < 0 || blocks_[neighbour].state != State::Unmapped) continue;
    take(neighbour);
    const bool before = neighbour == blocks_[middle].previous;
    join(before ? neighbour : middle, before ? middle : neighbour);
    if (before) middle = neighbour;
  }
  insert(pools_[key].unmapped, middle);
}

/// Cuts what a taken block has beyond `size` off, where PyTorch does.
void CachingAllocator::split(int block, Bytes size) {
  const Bytes rest = blocks_[block].size - size;
  const bool small = segments_[blocks_[block].segment].small;
  const bool cut = small || options_.expandable_segments
                       ? rest >= kMinBlock
                       : size < options_.max_split_size && rest > kSmallMax;
  if (cut) set_free(split_off(block, size));
}

/// The part of a taken block from `size` on, as a block of its own that is in no list yet.
int CachingAllocator::split_off(int block, Bytes size) {
  Block rest;
  rest.segment = blocks_[block].segment;
  rest.at = blocks_[block].at + size;
  rest.size = blocks_[block].size - size;
  rest.previous = block;
  rest.next = blocks_[block].next;
  const int created = new_block(rest);
  if (rest.next >= 0) blocks_[rest.next].previous = created;
  blocks_[block].next = created;
  blocks_[block].size = size;
  return created;
}

/// Joins a block, which is in no list, with its free neighbours; returns the joint block.
int CachingAllocator::merge(int block) {
  const auto is_free = [&](int id) { return id >= 0 && blocks_[id].state == State::Free; };
  if (const int next = blocks_[block].next; is_free(next)) {
    take(next);
    join(block, next);
  }
  if (const int previous = blocks_[block].previous; is_free(previous)) {
    take(previous);
    join(previous, block);
    return previous;
  }
  return block;
}

/// Makes `block` cover the block after it too.
void CachingAllocator::join(int block, int next) {
  blocks_[block].size += blocks_[next].size;
  blocks_[block].next = blocks_[next].next;
  if (blocks_[block].next >= 0) blocks_[blocks_[block].next].previous = block;
  unused_.push_back(next);
}

void CachingAllocator::set_free(int block) {
  const PoolKey& key = segments_[blocks_[block].segment];
  blocks_[block].state = State::Free;
  blocks_[block].searches_before = searches_[key.small];
  insert(pools_[key].free, block);
  use_.inactive_split += split_bytes(block);
}

/// Takes a free or unmapped block out of its list.
void CachingAllocator::take(int block) {
  const Block& taken = blocks_[block];
  Pool& pool = pools_[segments_[taken.segment]];
  const bool free = taken.state == State::Free;
  if (free) use_.inactive_split -= split_bytes(block);
  (free ? pool.free : pool.unmapped).erase(Fit{taken.size, taken.segment, taken.at, block});
}

void CachingAllocator::insert(std::set<Fit>& blocks, int block) {
  const Block& of = blocks_[block];
  blocks.insert(Fit{of.size, of.segment, of.at, block});
}

/// Returns free segments that waited longest for reuse, until the reserved bytes are below the
/// threshold.
void CachingAllocator::collect_garbage() {
  if (options_.garbage_collection_threshold <= 0 ||
      options_.limit == CachingAllocatorOptions::kNoLimit)
    return;
  const auto target = static_cast<Bytes>(options_.garbage_collection_threshold *
                                         static_cast<double>(options_.limit));
  const auto age = [&](int block) { return searches_[false] - blocks_[block].searches_before; };
  std::vector<int> candidates;
  for (const auto& [key, pool] : pools_)
    for (const Fit& fit : pool.free)
      if (!key.small && is_whole_segment(fit.block)) candidates.push_back(fit.block);
  while (use_.reserved > target && !candidates.empty()) {
    std::int64_t total = 0;
    for (const int block : candidates)
      total += age(block);
    const auto average = static_cast<double>(total) / static_cast<double>(candidates.size());
    std::erase_if(candidates, [&](int block) {
      if (use_.reserved <= target || static_cast<double>(age(block)) < average) return false;
      return_segment(block);
      return true;
    });
  }
}

/// With max_split_size: returns the smallest oversize block that is large enough for the request,
/// or as many of the largest as it takes. False: nothing was returned that helps.
bool CachingAllocator::release_oversize(const PoolKey& key, Bytes size) {
  if (options_.max_split_size == CachingAllocatorOptions::kNoLimit || options_.expandable_segments)
    return false;
  const Bytes wanted = std::max(size, options_.max_split_size);
  const std::set<Fit>& free = pools_[key].free;
  if (const auto one = free.lower_bound(Fit{wanted, -1, -1, -1}); one != free.end()) {
    return_segment(one->block);
    return true;
  }
  Bytes returned = 0;
  while (returned < wanted && !free.empty() && free.rbegin()->size >= options_.max_split_size) {
    returned += free.rbegin()->size;
    return_segment(free.rbegin()->block);
  }
  return returned >= wanted;
}

void CachingAllocator::return_cached() {
  for (auto& [key, pool] : pools_) {
    const std::vector<Fit> free(pool.free.begin(), pool.free.end());
    for (const Fit& fit : free) {
      if (options_.expandable_segments)
        unmap(fit.block);
      else if (is_whole_segment(fit.block))
        return_segment(fit.block);
    }
  }
}

void CachingAllocator::return_segment(int block) {
  take(block);
  use_.reserved -= blocks_[block].size;
  --use_.segments;
  mapped_[blocks_[block].segment] = 0;
  unused_.push_back(block);
}

bool CachingAllocator::is_whole_segment(int block) const {
  return blocks_[block].previous < 0 && blocks_[block].next < 0;
}

/// What a free block adds to inactive_split: nothing where it can be returned to the driver.
Bytes CachingAllocator::split_bytes(int block) const {
  return options_.expandable_segments || is_whole_segment(block) ? 0 : blocks_[block].size;
}

int CachingAllocator::new_block(Block block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<int>(blocks_.size()) - 1;
  }
  const int id = unused_.back();
  unused_.pop_back();
  blocks_[id] = block;
  return id;
}

void CachingAllocator::note_peak() {
  peak_.requested = std::max(peak_.requested, use_.requested);
  peak_.allocated = std::max(peak_.allocated, use_.allocated);
  peak_.active = std::max(peak_.active, use_.active);
  peak_.reserved = std::max(peak_.reserved, use_.reserved);
  peak_.inactive_split = std::max(peak_.inactive_split, use_.inactive_split);
  peak_.segments = std::max(peak_.segments, use_.segments);
}

}  // namespace shardplan
