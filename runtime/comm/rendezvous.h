#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "plans/units.h"
#include "runtime/comm/contribution.h"

namespace shardplan {

/// Where the members of one group meet for the collectives of one stream.
class Rendezvous {
 public:
  /// `place` names it in errors ("stream ag, group shard"); `ranks` are the members in group order.
  Rendezvous(std::string place, std::vector<std::int64_t> ranks, Seconds timeout_s);

  /// Waits for all members; after that their contributions may be read until leave(). Throws
  /// SystemError when members bring different collectives, one does not come in time, or the job
  /// is aborted.
  std::span<const Contribution> enter(int member, const Contribution& contribution);
  /// Waits until all members have come this far.
  void sync(int member);
  /// Waits until no member reads this member's data any more.
  void leave(int member) { sync(member); }

  /// Wakes all members, now and later; their calls throw with `reason`.
  void abort(const char* reason) noexcept;

 private:
  bool over(std::uint64_t generation) const {
    return generation_.load(std::memory_order_acquire) != generation ||
           broken_.load(std::memory_order_acquire);
  }
  [[noreturn]] void time_out(int member);
  [[noreturn]] void throw_aborted(int member) const;

  const std::string place_;
  const std::vector<std::int64_t> ranks_;
  const Seconds timeout_s_;
  std::vector<Contribution> contributions_;  // by member
  std::vector<char> here_;                   // by member: has come to the current barrier
  std::size_t count_ = 0;                    // members that have
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<bool> broken_{false};
  std::string reason_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace shardplan
