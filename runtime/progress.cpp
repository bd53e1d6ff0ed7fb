#include "runtime/progress.h"

#include <thread>

namespace shardplan {
namespace {

// Ranks times streams is often more threads than cores, so a waiter soon gives its core away.
constexpr int kYields = 8;

}  // namespace

void Progress::reach(std::uint64_t value) {
  {
    const std::lock_guard lock(mutex_);
    value_.store(value, std::memory_order_release);
  }
  changed_.notify_all();
}

bool Progress::wait(std::uint64_t value) {
  for (int i = 0; i < kYields && !done(value); ++i)
    std::this_thread::yield();
  if (!done(value)) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done(value); });
  }
  return this->value() >= value;
}

void Progress::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

}  // namespace shardplan
