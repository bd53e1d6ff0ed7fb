#include "runtime/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "plans/error.h"
#include "runtime/cpu_device.h"
#include "runtime/host_memory.h"
#include "tests/unit/scratch_folder.h"

namespace shardplan {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

/// A resident of 64 bytes, and two activations of 32 bytes that follow each other in the same
/// bytes; the second is written in two halves.
Plan plan_with_reuse() {
  Plan plan;
  plan.buffers = {{.name = "weights",
                   .category = Category::Parameters,
                   .elems = 16,
                   .resident = true,
                   .offset = 0},
                  {.name = "early", .category = Category::Activations, .elems = 8, .offset = 128},
                  {.name = "late", .category = Category::Temporaries, .elems = 8, .offset = 128}};
  const auto fill = [&](const char* name, View view) {
    plan.instructions.push_back({.name = name,
                                 .stream = Stream::Compute,
                                 .phase = Phase::Forward,
                                 .unit = -1,
                                 .reads = {},
                                 .writes = {view},
                                 .after = {},
                                 .operation = Fill{}});
  };
  fill("weights", {0, 0, 16});
  fill("early", {1, 0, 8});
  fill("late.head", {2, 0, 4});
  fill("late.tail", {2, 4, 4});
  plan.segments = {{"all", 0, 4}};
  plan.program = {{1, 0, {}}};
  plan.arena.bytes = 192;
  return plan;
}

class Meter : public ::testing::Test {
 protected:
  /// Executes the instruction by writing ones to the first `bytes` of its operand.
  void run(InstructionId id, std::size_t bytes) {
    const Issue issue{.id = id, .first = true};
    meter_.before(issue);
    const View& view = plan_.instructions[id].writes[0];
    std::memset(arena_.bytes().data() + plan_.buffers[view.buffer].offset + view.at * 4, 1, bytes);
    meter_.after(issue);
  }
  Bytes measured(const RankMemory& memory, Category category) {
    return memory.at_peak[static_cast<int>(category)].value();
  }

  const Plan plan_ = plan_with_reuse();
  CpuDevice device_{{}, {}};
  const Arena arena_{device_, plan_.arena.bytes};
  MemoryMeter meter_{plan_, arena_, device_};
};

TEST_F(Meter, CountsTheBytesOfBuffersThatLiveAtThePeak) {
  run(0, 64);
  run(1, 32);
  run(2, 16);
  run(3, 16);
  const RankMemory memory = meter_.finish();
  EXPECT_EQ(memory.peak_at, "early");
  EXPECT_EQ(measured(memory, Category::Parameters), 64);
  EXPECT_EQ(measured(memory, Category::Activations), 32);
  EXPECT_EQ(measured(memory, Category::Temporaries), 0);
  EXPECT_EQ(memory.peak_allocated_bytes, 160);
}

TEST_F(Meter, WordsThatAKernelLeavesOutAreMissed) {
  run(0, 60);
  run(1, 28);
  run(2, 16);
  run(3, 8);
  const RankMemory memory = meter_.finish();
  EXPECT_EQ(measured(memory, Category::Parameters), 60);
  EXPECT_EQ(measured(memory, Category::Activations), 28);
  EXPECT_EQ(memory.peak_allocated_bytes, 152);
}

TEST_F(Meter, WritesAroundTheArenaAreOverruns) {
  arena_.guard_after()[0] = std::byte{1};
  EXPECT_THAT(error_of<SystemError>([&] { meter_.finish(); }),
              HasSubstr("memory overrun: 4 bytes after the arena"));
}

TEST_F(Meter, WritesBetweenBuffersAreOverruns) {
  arena_.bytes()[100] = std::byte{1};
  EXPECT_THAT(error_of<SystemError>([&] { meter_.finish(); }),
              HasSubstr("from offset 64 of the arena on"));
}

TEST(HostMemory, IsThatOfAProgramOnAMachine) {
  const Bytes resident = resident_set_bytes().value_or(0);
  EXPECT_GT(resident, 1 << 20);
  EXPECT_GT(available_memory_bytes().value_or(0), resident);
}

}  // namespace
}  // namespace shardplan
