#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace shardplan {

/// Runs `work(i)`, which must not throw, for every i below `count` on all cores.
template <typename Work>
void on_all_cores(std::size_t count, Work work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < count; i = next++)
        work(i);
    });
}

}  // namespace shardplan
