#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "plans/error.h"
#include "runtime/comm/thread_communicator.h"
#include "tests/unit/rank_threads.h"

namespace shardplan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_ranks;

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "nothing was thrown";
  try {
    std::rethrow_exception(error);
  } catch (const SystemError& system) {
    return system.what();
  }
}

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

constexpr Mesh kTwoByTwo{.replicate = 2, .shard = 2};

TEST(ThreadWorld, GroupsAreTheMeshsAxes) {
  ThreadWorld world(kTwoByTwo, 60);
  std::vector<std::vector<float>> data{{1}, {2}, {4}, {8}};
  testing::expect_ranks(4, [&](int rank) {
    Communicator& end = world.at(rank);
    EXPECT_EQ(end.rank(), rank);
    EXPECT_EQ(end.size(Group::World), 4);
    EXPECT_EQ(end.size(Group::Shard), 2);
    end.all_reduce(Stream::AllReduce, Group::Shard, Dtype::Float32, bytes_of(data[rank]), 1, 1);
  });
  EXPECT_EQ(data, (std::vector<std::vector<float>>{{3}, {3}, {12}, {12}}));
  testing::expect_ranks(4, [&](int rank) {
    world.at(rank).all_reduce(Stream::AllReduce, Group::Replicate, Dtype::Float32,
                              bytes_of(data[rank]), 1, 1);
  });
  EXPECT_EQ(data, (std::vector<std::vector<float>>{{15}, {15}, {15}, {15}}));
}

TEST(ThreadWorld, DifferentCollectivesFailOnAllRanks) {
  ThreadWorld world({.replicate = 1, .shard = 3}, 60);
  std::vector<std::vector<float>> data(3, std::vector<float>(4));
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank == 2)
      world.at(rank).broadcast(Stream::AllGather, Group::Shard, bytes_of(data[rank]), 0);
    else
      world.at(rank).all_reduce(Stream::AllGather, Group::Shard, Dtype::Float32,
                                bytes_of(data[rank]), 1, 1);
  });
  for (const std::exception_ptr& error : errors)
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("different collectives on stream ag, group shard"),
                                      HasSubstr("rank 0 all_reduce of 16 bytes"),
                                      HasSubstr("rank 2 broadcast of 16 bytes")));
}

TEST(ThreadWorld, DifferentSizesAndScalesFailOnAllRanks) {
  ThreadWorld world({.replicate = 1, .shard = 2}, 60);
  std::vector<std::vector<float>> data{std::vector<float>(4), std::vector<float>(5)};
  for (const std::exception_ptr& error : run_ranks(2, [&](int rank) {
         world.at(rank).all_reduce(Stream::Compute, Group::World, Dtype::Float32,
                                   bytes_of(data[rank]), 1, 1);
       }))
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("16 bytes"), HasSubstr("20 bytes")));
  for (const std::exception_ptr& error : run_ranks(2, [&](int rank) {
         world.at(rank).all_reduce(Stream::Host, Group::World, Dtype::Float32, bytes_of(data[0]), 1,
                                   rank + 1);
       }))
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("scales 1 and 1"), HasSubstr("scales 1 and 2")));
}

TEST(ThreadWorld, AMissingRankIsNamedAfterTheTimeout) {
  ThreadWorld world({.replicate = 1, .shard = 3}, 0.1);
  std::vector<std::vector<float>> data(3, std::vector<float>(1));
  const auto errors = run_ranks(2, [&](int rank) {
    world.at(rank).all_reduce(Stream::AllReduce, Group::World, Dtype::Float32, bytes_of(data[rank]),
                              1, 1);
  });
  int named = 0;
  for (const std::exception_ptr& error : errors) {
    EXPECT_NE(error, nullptr);
    const std::string text = text_of(error);
    named += text.find("in all_reduce for rank 2") != std::string::npos;
  }
  EXPECT_GE(named, 1);
  // The rank that comes too late must not read the others' memory.
  EXPECT_THROW(world.at(2).all_reduce(Stream::AllReduce, Group::World, Dtype::Float32,
                                      bytes_of(data[2]), 1, 1),
               SystemError);
}

TEST(ThreadWorld, AnAbortWakesAllWhoWait) {
  ThreadWorld world({.replicate = 1, .shard = 3}, 600);
  std::vector<std::vector<float>> data(3, std::vector<float>(1));
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      world.at(rank).abort("rank 2 ran out of luck");
      return;
    }
    world.at(rank).all_reduce(Stream::AllReduce, Group::World, Dtype::Float32, bytes_of(data[rank]),
                              1, 1);
  });
  for (const int rank : {0, 1})
    EXPECT_THAT(text_of(errors[rank]), HasSubstr("rank 2 ran out of luck"));
  EXPECT_EQ(errors[2], nullptr);
}

}  // namespace
}  // namespace shardplan
