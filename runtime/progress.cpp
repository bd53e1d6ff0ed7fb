#include "runtime/progress.h"

#include "runtime/spin.h"

namespace shardplan {

void Progress::reach(std::uint64_t value) {
  {
    const std::lock_guard lock(mutex_);
    value_.store(value, std::memory_order_release);
  }
  changed_.notify_all();
}

bool Progress::wait(std::uint64_t value) {
  spin_briefly([&] { return done(value); });
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
