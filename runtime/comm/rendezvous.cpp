#include "runtime/comm/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "plans/error.h"
#include "runtime/spin.h"

namespace shardplan {
Rendezvous::Rendezvous(std::string place, std::vector<std::int64_t> ranks, Seconds timeout_s)
    : place_(std::move(place)),
      ranks_(std::move(ranks)),
      timeout_s_(timeout_s),
      contributions_(ranks_.size()),
      here_(ranks_.size(), 0) {}

std::span<const Contribution> Rendezvous::enter(int member, const Contribution& contribution) {
  contributions_[member] = contribution;
  sync(member);
  expect_same(place_, ranks_, contributions_);
  return contributions_;
}

void Rendezvous::sync(int member) {
  std::unique_lock lock(mutex_);
  if (broken_) throw_aborted(member);
  const std::uint64_t generation = generation_.load(std::memory_order_relaxed);
  here_[member] = 1;
  if (++count_ == ranks_.size()) {
    count_ = 0;
    std::ranges::fill(here_, char{0});
    generation_.store(generation + 1, std::memory_order_release);
    lock.unlock();
    changed_.notify_all();
    return;
  }
  lock.unlock();
  spin_briefly([&] { return over(generation); });
  lock.lock();
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(timeout_s_));
  const bool in_time = changed_.wait_until(lock, deadline, [&] { return over(generation); });
  if (generation_.load(std::memory_order_relaxed) != generation) return;
  if (!in_time) time_out(member);
  throw_aborted(member);
}

void Rendezvous::throw_aborted(int member) const {
  throw SystemError(fmt::format("{}: rank {} left a collective because the job was aborted: {}",
                                place_, ranks_[member], reason_));
}

/// Called with the lock held. Whoever comes later must not read the data of those who gave up.
void Rendezvous::time_out(int member) {
  std::string missing;
  for (std::size_t m = 0; m < here_.size(); ++m)
    if (!here_[m]) missing += (missing.empty() ? "" : ", ") + std::to_string(ranks_[m]);
  const std::string what =
      fmt::format("{}: rank {} waited {:g} s in {} for rank {}", place_, ranks_[member], timeout_s_,
                  to_string(contributions_[member].kind), missing);
  if (!broken_) reason_ = what;
  broken_.store(true, std::memory_order_release);
  changed_.notify_all();
  throw SystemError(what);
}

void Rendezvous::abort(const char* reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.load(std::memory_order_relaxed)) {
      try {
        reason_ = reason;
      } catch (...) {
        reason_.clear();  // no memory for the text; the abort itself still counts
      }
    }
    broken_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

}  // namespace shardplan
