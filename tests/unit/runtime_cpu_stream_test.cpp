#include "runtime/cpu_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace shardplan {
namespace {

using namespace std::chrono_literals;

TEST(CpuStream, RunsIssuesInOrder) {
  std::vector<InstructionId> order;
  CpuStream stream(
      [&](const Issue& issue) {
        order.push_back(issue.id);
        return true;
      },
      1);
  for (InstructionId id = 0; id < 1000; ++id)
    EXPECT_EQ(stream.enqueue({.id = id}), id + 1);
  EXPECT_TRUE(stream.wait(1000));
  ASSERT_EQ(order.size(), 1000);
  for (InstructionId id = 0; id < 1000; ++id)
    EXPECT_EQ(order[id], id);
}

TEST(CpuStream, TheIssuerCannotRunFarAhead) {
  std::atomic<bool> open{false};
  std::atomic<int> issued{0};
  CpuStream stream(
      [&](const Issue&) {
        while (!open)
          std::this_thread::sleep_for(1ms);
        return true;
      },
      1);
  std::thread issuer([&] {
    for (int i = 0; i < 1000; ++i) {
      stream.enqueue({});
      ++issued;
    }
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(issued, 100);
  open = true;
  issuer.join();
  EXPECT_TRUE(stream.wait(1000));
}

TEST(CpuStream, NothingRunsAfterAFailedIssue) {
  std::atomic<int> runs{0};
  CpuStream stream([&](const Issue& issue) { return ++runs, issue.id != 1; }, 1);
  for (InstructionId id = 0; id < 4; ++id)
    stream.enqueue({.id = id});
  while (runs < 2)
    std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(runs, 2);
  stream.stop();
  EXPECT_TRUE(stream.wait(1));
  EXPECT_FALSE(stream.wait(2));
}

TEST(CpuStream, StopWakesAnIssuerThatWaitsForRoom) {
  std::atomic<bool> open{false};
  CpuStream stream(
      [&](const Issue&) {
        while (!open)
          std::this_thread::sleep_for(1ms);
        return true;
      },
      1);
  std::uint64_t last = 1;
  std::thread issuer([&] {
    while (last != 0)
      last = stream.enqueue({});
  });
  std::this_thread::sleep_for(20ms);
  stream.stop();
  issuer.join();
  EXPECT_EQ(last, 0);
  open = true;
}

}  // namespace
}  // namespace shardplan
