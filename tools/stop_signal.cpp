#include "tools/stop_signal.h"

#include <atomic>
#include <csignal>

namespace shardplan {
namespace {

// Global, because a signal handler sees nothing else.
std::atomic<bool> stop_requested{false};

}  // namespace

std::function<bool()> stop_on_sigterm() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested.store(true, std::memory_order_relaxed); };
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  return [] { return stop_requested.load(std::memory_order_relaxed); };
}

}  // namespace shardplan
