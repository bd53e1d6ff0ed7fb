#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "simulator/caching_allocator.h"

namespace shardplan {

/// When the host issues each instruction of an order, and when a block may be handed out again that
/// is freed there while other streams use it (record_stream).
struct ReuseTimes {
  std::vector<Seconds> issued;    // by position
  std::vector<Seconds> reusable;  // by position; only of frees that name streams
};

/// The host is taken to issue an instruction as the compute stream gets to it. Empty when the plan
/// frees nothing that other streams use.
ReuseTimes reuse_times(const Plan& plan, const CostConstants& costs,
                       std::span<const InstructionId> order);

/// What is allocated in device memory along a plan's issue order, for a plan whose buffers come and
/// go by `alloc` and `free`.
class MemoryReplay {
 public:
  using Categories = std::array<Bytes, kCategories>;

  /// Residents of a rank of `rank_class` are allocated from the begin. `times`: of the order in
  /// which instructions will be issued.
  MemoryReplay(const Plan& plan, std::size_t rank_class, ReuseTimes times = {});

  /// The next instruction of the order.
  void issue(InstructionId id);

  /// Bytes that were asked for, without the allocator's rounding.
  Bytes requested() const { return requested_; }
  /// Bytes in the host's memory, pinned or not.
  Bytes host() const { return host_; }
  const Categories& by_category() const { return by_category_; }
  const CachingAllocator& allocator() const { return allocator_; }

 private:
  void alloc(BufferId id, Stream stream);
  void free(BufferId id, bool used_elsewhere);
  void count(BufferId id, Bytes sign);
  void count_host(BufferId id, Bytes sign);

  const Plan& plan_;
  const std::size_t rank_class_;
  const ReuseTimes times_;
  std::size_t position_ = 0;
  CachingAllocator allocator_;
  std::vector<CachingAllocator::BlockId> blocks_;  // by buffer
  Bytes requested_ = 0;
  Bytes host_ = 0;
  Categories by_category_{};
};

}  // namespace shardplan
