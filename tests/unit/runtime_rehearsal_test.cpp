#include <gtest/gtest.h>

#include <vector>

#include "runtime/comm/rehearsal_communicator.h"
#include "runtime/executor.h"
#include "tests/unit/scratch_folder.h"
#include "tests/unit/two_unit_plan.h"

namespace shardplan {
namespace {

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST(RehearsalCommunicator, OthersBringWhatThisRankBrings) {
  RehearsalCommunicator end({.replicate = 2, .shard = 3}, 4);
  EXPECT_EQ(end.rank(), 4);
  EXPECT_EQ(end.place(Group::Shard), 1);
  EXPECT_EQ(end.place(Group::Replicate), 1);
  std::vector<float> shard{1, 2};
  std::vector<float> full(6);
  end.all_gather(Stream::AllGather, Group::Shard, bytes_of(shard), bytes_of(full));
  EXPECT_EQ(full, (std::vector<float>{1, 2, 1, 2, 1, 2}));
  full = {1, 2, 3, 4, 5, 6};
  end.reduce_scatter(Stream::ReduceScatter, Group::Shard, Dtype::Float32, bytes_of(full),
                     bytes_of(shard), 2, 0.5);
  EXPECT_EQ(shard, (std::vector<float>{9, 12}));
  end.all_reduce(Stream::AllReduce, Group::World, Dtype::Float32, bytes_of(shard), 1, 1);
  EXPECT_EQ(shard, (std::vector<float>{54, 72}));
}

TEST(Rehearsal, MeasuresOneRankOfMany) {
  const testing::ScratchFolder folder;
  std::string tokens;
  for (int i = 0; i < 200; ++i)
    tokens += {static_cast<char>(i * i % testing::kTwoUnitsVocab), '\0'};
  const Plan plan = testing::two_unit_plan({.world = 64,
                                            .sharded = true,
                                            .tokens = folder.file("tokens.bin", tokens),
                                            .output = folder.path("out")});
  const Report report = rehearse(plan, {}, 63);
  EXPECT_EQ(report.rehearsal, "63/64");
  EXPECT_EQ(report.world_size, 64);
  ASSERT_EQ(report.ranks.size(), 1);
  EXPECT_EQ(report.ranks[0].ranks, "63");
  EXPECT_GT(*report.ranks[0].memory.peak_allocated_bytes, 0);
  EXPECT_EQ(report.steps.size(), 3);
  EXPECT_GT(report.steps.back().loss, 0);
  EXPECT_EQ(report.instructions.size(), plan.instructions.size());
  EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
}

}  // namespace
}  // namespace shardplan
