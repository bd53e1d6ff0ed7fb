#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "plans/error.h"
#include "runtime/comm/launch_environment.h"
#include "runtime/comm/messages.h"
#include "tests/unit/rank_threads.h"
#include "tests/unit/scratch_folder.h"
#include "tests/unit/test_world.h"

namespace shardplan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr std::array kStreamUsed{Stream::AllGather};

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// Three connected ranks.
class ProcessRanks : public ::testing::Test {
 protected:
  void connect(Seconds timeout_s) {
    worlds_ = testing::connected_worlds(3, timeout_s);
    ends_.resize(3);
    testing::expect_ranks(3, [&](int rank) {
      ends_[rank] = worlds_[rank]->communicator({.replicate = 1, .shard = 3}, kStreamUsed);
    });
  }
  void sum(int rank) {
    std::vector<float> data{1, 2, 3};
    ends_[rank]->all_reduce(Stream::AllGather, Group::Shard, Dtype::Float32, bytes_of(data), 1, 1);
  }
  /// What each rank that calls `body` throws, and then has to tell; "" for nothing.
  template <typename Body>
  std::vector<std::string> told_by(int ranks, Body body) {
    std::vector<std::string> told(ranks);
    testing::expect_ranks(ranks, [&](int rank) {
      const std::string text = error_of<SystemError>([&] { body(rank); });
      ends_[rank]->abort(text.c_str());
      const auto report = worlds_[rank]->report(text);
      told[rank] = report.value_or("");
      if (!report) return;
      ends_[rank].reset();  // the others wait until it has told
      worlds_[rank].reset();
    });
    return told;
  }

  std::vector<std::unique_ptr<ProcessWorld>> worlds_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

TEST_F(ProcessRanks, TextsReachAllRanks) {
  connect(60);
  testing::expect_ranks(3, [&](int rank) {
    EXPECT_EQ(broadcast_text(*ends_[rank], rank == 0 ? "plan" : ""), "plan");
    EXPECT_THAT(gather_texts(*ends_[rank], std::string(rank, 'x')), ElementsAre("", "x", "xx"));
  });
}

TEST_F(ProcessRanks, OneRankTellsThatAnotherDidNotCome) {
  connect(0.3);
  const auto told = told_by(2, [&](int rank) { sum(rank); });
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("stream ag, group shard"),
                                      HasSubstr("waited 0.3 s in all_reduce for rank 2")),
                                ""));
}

TEST_F(ProcessRanks, OneRankTellsThatAnotherFailed) {
  connect(60);
  const auto told = told_by(3, [&](int rank) {
    if (rank == 1) throw SystemError("the disk of rank 1 is full");
    sum(rank);
  });
  EXPECT_THAT(told, ElementsAre("", "the disk of rank 1 is full", ""));
}

TEST_F(ProcessRanks, OneRankTellsThatCollectivesDiffer) {
  connect(60);
  const auto told = told_by(3, [&](int rank) {
    if (rank != 1) return sum(rank);
    std::vector<float> data(5);
    ends_[rank]->broadcast(Stream::AllGather, Group::Shard, bytes_of(data), 0);
  });
  EXPECT_THAT(told[0], AllOf(HasSubstr("different collectives on stream ag, group shard"),
                             HasSubstr("all_reduce of 12 bytes"),
                             HasSubstr("rank 1 broadcast of 20 bytes")));
  EXPECT_THAT(told, ElementsAre(::testing::_, "", ""));
}

TEST_F(ProcessRanks, ThoseWhoLeaveInOrderAreNotMissed) {
  connect(60);
  testing::expect_ranks(3, [&](int rank) {
    sum(rank);
    ends_[rank].reset();
    worlds_[rank].reset();
  });
}

/// Environment variables that go with the test.
class LaunchedPlace : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
          "PMIX_NAMESPACE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
          "SLURM_STEP_NODELIST", "SLURM_JOB_ID"})
      unsetenv(name);
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(LaunchedPlace, IsNoneWithoutALauncher) { EXPECT_FALSE(launched_place().has_value()); }

TEST_F(LaunchedPlace, IsThatOfTorchrun) {
  set("RANK", "3");
  set("WORLD_SIZE", "8");
  set("LOCAL_WORLD_SIZE", "4");
  set("MASTER_ADDR", "node1");
  set("MASTER_PORT", "29500");
  const auto place = launched_place();
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->host, "node1");
  EXPECT_EQ(place->port, 29500);
}

TEST_F(LaunchedPlace, IsThatOfMpirunOnOneMachine) {
  set("OMPI_COMM_WORLD_RANK", "1");
  set("OMPI_COMM_WORLD_SIZE", "2");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  set("PMIX_NAMESPACE", "1635123201");
  const auto place = launched_place();
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->host, "127.0.0.1");
  EXPECT_GE(place->port, 20000);
  set("PMIX_NAMESPACE", "1635123202");
  EXPECT_NE(launched_place()->port, place->port);
}

TEST_F(LaunchedPlace, IsThatOfSrunOnSeveralMachines) {
  set("SLURM_PROCID", "7");
  set("SLURM_STEP_NUM_TASKS", "8");
  set("SLURM_STEP_TASKS_PER_NODE", "4(x2)");
  set("SLURM_JOB_ID", "77");
  for (const auto& [list, first] :
       {std::pair("gpu[003-004]", "gpu003"), std::pair("a1,b2", "a1"), std::pair("n[7,9]", "n7")}) {
    set("SLURM_STEP_NODELIST", list);
    EXPECT_EQ(launched_place()->host, first);
  }
}

TEST_F(LaunchedPlace, IsRefusedWhereRank0IsNotKnown) {
  set("OMPI_COMM_WORLD_RANK", "1");
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  set("PMIX_NAMESPACE", "1");
  EXPECT_THAT(error_of<InputError>([] { launched_place(); }), HasSubstr("set MASTER_ADDR"));
}

TEST_F(LaunchedPlace, NumbersMustMakeSense) {
  set("RANK", "8");
  set("WORLD_SIZE", "8");
  EXPECT_THAT(error_of<InputError>([] { launched_place(); }),
              HasSubstr("RANK=8: expected a whole number from 0 to 7"));
}

}  // namespace
}  // namespace shardplan
