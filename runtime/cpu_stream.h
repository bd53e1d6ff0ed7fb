#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <thread>

#include "runtime/device.h"
#include "runtime/progress.h"

namespace shardplan {

/// A worker thread that runs issues in order. Its queue has a fixed size, so issuing allocates
/// nothing and cannot run far ahead.
class CpuStream {
 public:
  /// Runs one issue; false: it failed, run no more.
  using Body = std::function<bool(const Issue&)>;

  /// `threads`: of the parallel regions inside a body.
  CpuStream(Body body, int threads);
  ~CpuStream();
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  /// Called by one thread only. Returns the issue's number, from 1 on; 0: stopped.
  std::uint64_t enqueue(const Issue& issue);
  /// Blocks until `count` issues have finished; false: stopped before that.
  bool wait(std::uint64_t count) { return finished_.wait(count); }
  void stop() noexcept;
  /// Stops, and blocks until the body of the last issue has returned.
  void join() noexcept;

 private:
  static constexpr std::uint64_t kCapacity = 64;

  void work(int threads);

  const Body body_;
  std::array<Issue, kCapacity> queue_;
  Progress issued_;
  Progress finished_;
  std::thread worker_;
};

}  // namespace shardplan
