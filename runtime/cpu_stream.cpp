#include "runtime/cpu_stream.h"

#include <omp.h>

#include <utility>

#include "runtime/start_thread.h"

namespace shardplan {

CpuStream::CpuStream(Body body, int threads)
    : body_(std::move(body)), worker_(start_thread([this, threads] { work(threads); })) {}

CpuStream::~CpuStream() { join(); }

std::uint64_t CpuStream::enqueue(const Issue& issue) {
  const std::uint64_t number = issued_.value() + 1;
  if (number > kCapacity && !finished_.wait(number - kCapacity)) return 0;
  queue_[number % kCapacity] = issue;
  issued_.reach(number);
  return number;
}

void CpuStream::stop() noexcept {
  issued_.stop();
  finished_.stop();
}

void CpuStream::join() noexcept {
  stop();
  if (worker_.joinable()) worker_.join();
}

void CpuStream::work(int threads) {
  omp_set_num_threads(threads);
  for (std::uint64_t next = 1; issued_.wait(next) && !issued_.stopped(); ++next) {
    if (!body_(queue_[next % kCapacity])) return;
    finished_.reach(next);
  }
}

}  // namespace shardplan
