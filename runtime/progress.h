#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace shardplan {

/// A count that only grows; threads wait until it has reached a value. One thread raises it.
class Progress {
 public:
  std::uint64_t value() const { return value_.load(std::memory_order_acquire); }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  void reach(std::uint64_t value);
  /// Blocks until the count is at least `value`; false when stopped before that.
  bool wait(std::uint64_t value);
  /// Wakes all waiters, now and later.
  void stop() noexcept;

 private:
  bool done(std::uint64_t value) const { return this->value() >= value || stopped(); }

  std::atomic<std::uint64_t> value_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace shardplan
