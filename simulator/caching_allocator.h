#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plans/units.h"

namespace shardplan {

/// What PYTORCH_CUDA_ALLOC_CONF and the device set, under PyTorch's names.
struct CachingAllocatorOptions {
  static constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

  /// Steps between two powers of two to which requests are rounded up, for requests from 1 MiB,
  /// 2 MiB, 4 MiB ... on; smaller and larger ones follow the first and the last entry. Empty, or 0
  /// or 1 for a size: only multiples of 512 B.
  std::vector<std::int64_t> roundup_power2_divisions;
  Bytes max_split_size = kNoLimit;
  Bytes max_non_split_rounding = 20 << 20;
  bool expandable_segments = false;
  double garbage_collection_threshold = 0;  // share of `limit`; 0: none
  Bytes limit = kNoLimit;                   // what the driver can give
};

/// Bytes in the words of torch.cuda.memory_stats().
struct AllocatorUse {
  Bytes requested = 0;  // of the allocated blocks, before rounding
  Bytes allocated = 0;  // blocks that are handed out
  Bytes active = 0;     // allocated, and blocks that wait for another stream's work
  Bytes reserved = 0;   // from the driver
  Bytes inactive_split = 0;
  std::int64_t segments = 0;
};

/// A model of PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11):
/// the same blocks from the same calls, for memory that does not exist.
class CachingAllocator {
 public:
  using BlockId = int;
  /// What a request of 0 bytes gets.
  static constexpr BlockId kNoBlock = -1;

  explicit CachingAllocator(CachingAllocatorOptions options = {}) : options_(std::move(options)) {}

  /// A block for `bytes` in the pool of `stream`; `now` is the host's time, in seconds. nullopt:
  /// out of memory, also after all cached memory was returned.
  std::optional<BlockId> allocate(Bytes bytes, int stream, Seconds now = 0);
  void release(BlockId block);
  /// Releases a block that other streams use (record_stream): it is reused by requests from
  /// `reusable_at` on.
  void release_after(BlockId block, Seconds reusable_at);
  /// torch.cuda.empty_cache(): waits for all streams and returns segments that are free.
  void empty_cache();

  struct Placement {
    int segment = -1;  // counted in the order they came from the driver
    Bytes at = 0;      // from the begin of the segment
    Bytes bytes = 0;
    bool small_pool = false;
  };
  Placement placement(BlockId block) const;

  const AllocatorUse& use() const { return use_; }
  /// The largest value that each figure has had.
  const AllocatorUse& peak() const { return peak_; }
  /// Times that cached memory was returned because the driver had no more (num_alloc_retries):
  /// from then on a figure near the limit is soft.
  int retries() const { return retries_; }

 private:
  enum class State { Free, Allocated, Pending, Unmapped };
  struct Block {
    int segment = -1;
    Bytes at = 0;
    Bytes size = 0;
    Bytes requested = 0;
    int previous = -1;  // neighbours in the segment
    int next = -1;
    State state = State::Free;
    std::int64_t searches_before = 0;  // of its pool when it became free
  };
  /// Order of best fit: size, then address.
  struct Fit {
    Bytes size;
    int segment;
    Bytes at;
    int block;
    auto operator<=>(const Fit&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Pool {
    std::set<Fit> free;
    std::set<Fit> unmapped;  // address space of expandable segments
  };
  struct PoolKey {
    bool small;
    int stream;
    auto operator<=>(const PoolKey&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  Bytes rounded(Bytes bytes) const;
  Bytes page_of(const PoolKey& key) const;
  int find_free(const PoolKey& key, Bytes size);
  std::set<Fit>::const_iterator best_fit(const Pool& pool, Bytes size) const;
  int obtain(const PoolKey& key, Bytes size);
  int new_memory(const PoolKey& key, Bytes size);
  int new_segment(const PoolKey& key, Bytes size);
  int add_segment(const PoolKey& key, Bytes size, State state);
  int grow(const PoolKey& key, Bytes size);
  int place_to_grow(const PoolKey& key, Bytes size);
  bool can_grow(int block, Bytes size) const;
  int map(int block, Bytes size);
  void unmap(int block);
  void split(int block, Bytes size);
  int split_off(int block, Bytes size);
  int merge(int block);
  void join(int block, int next);
  void set_free(int block);
  void take(int block);
  void release_finished(Seconds now);
  void collect_garbage();
  bool release_oversize(const PoolKey& key, Bytes size);
  void return_cached();
  void return_segment(int block);
  void insert(std::set<Fit>& blocks, int block);
  Bytes split_bytes(int block) const;
  bool is_whole_segment(int block) const;
  int new_block(Block block);
  void note_peak();

  CachingAllocatorOptions options_;
  AllocatorUse use_;
  AllocatorUse peak_;
  int retries_ = 0;
  std::vector<Block> blocks_;
  std::vector<int> unused_;        // indices of blocks_ that joined others
  std::vector<PoolKey> segments_;  // whose pool a segment belongs to
  std::vector<Bytes> mapped_;      // by segment; expandable ones change
  std::map<PoolKey, Pool> pools_;
  std::array<std::int64_t, 2> searches_{};  // in the large and small pools
  std::multimap<Seconds, int> pending_;     // blocks by the time at which they become free
};

}  // namespace shardplan
