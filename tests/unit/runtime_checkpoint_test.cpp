#include "runtime/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "plans/error.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/crc32c.h"
#include "tests/unit/scratch_folder.h"
#include "tests/unit/test_world.h"
#include "tests/unit/two_unit_plan.h"

namespace shardplan {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Kind;
using testing::ScratchFolder;
using testing::two_unit_plan;

TEST(Crc32c, IsThatOfTheRfc) {
  // RFC 3720, appendix B.4, and the usual check value.
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8a9136aau);
  const std::string digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

class Checkpoints : public ::testing::Test {
 protected:
  Plan plan(int world, bool sharded) {
    return two_unit_plan({.world = world, .sharded = sharded, .output = folder_.path("out")});
  }
  /// Every rank holds the numbers 0, 1, 2 ... of each buffer, from its own place on.
  void write(const Plan& plan, int steps) {
    const auto ranks = static_cast<int>(plan.world_size());
    std::filesystem::remove_all(path(steps));
    testing::TestWorld world(Kind::Threads, plan.mesh, {});
    testing::expect_ranks(ranks, [&](int rank) {
      std::deque<std::vector<float>> all;
      CheckpointWriter writer(plan, world.at(rank), [&](const View& view) {
        std::vector<float>& values = all.emplace_back(static_cast<std::size_t>(view.elems));
        const bool whole = plan.units[0].shards() == 1;
        std::iota(values.begin(), values.end(),
                  static_cast<float>(view.at + (whole ? 0 : rank * view.elems)));
        return std::span<const float>(values);
      });
      writer.begin({steps, steps * 10});
      all.clear();  // what is written is a copy
      EXPECT_TRUE(writer.is_pending());
      EXPECT_FALSE(std::filesystem::exists(path(steps)));
      writer.finish();
      EXPECT_FALSE(writer.is_pending());
    });
  }
  std::string path(int steps) {
    return folder_.path("out/checkpoints/step-0000000" + std::to_string(steps));
  }

  ScratchFolder folder_;
};

TEST_F(Checkpoints, OfWholeAndShardedParametersAreAlike) {
  for (const bool sharded : {false, true})
    for (const int world : {1, 2, 3}) {
      const Plan written = plan(world, sharded);
      write(written, 4);
      const Checkpoint checkpoint(path(4), Checkpoint::Verify::Checksums);
      EXPECT_EQ(checkpoint.position().steps, 4);
      EXPECT_EQ(checkpoint.position().sequences, 40);
      checkpoint.expect_state_of(plan(1, false));
      checkpoint.expect_state_of(plan(5, true));
      const UnitParameter& parameter = written.units[0].parameters[0];
      std::vector<float> values(static_cast<std::size_t>(parameter.elems) - 3);
      checkpoint.read(parameter.name, 3, values);
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], static_cast<float>(parameter.at + 3 + i)) << sharded << world << i;
    }
}

TEST_F(Checkpoints, TwoAreKept) {
  for (const int steps : {1, 2, 3})
    write(plan(2, true), steps);
  EXPECT_THAT(checkpoints_in(folder_.path("out/checkpoints")),
              ::testing::ElementsAre(path(3), path(2)));
}

TEST_F(Checkpoints, ThatAreNotWholeAreNoCheckpoints) {
  std::filesystem::create_directories(path(5) + ".tmp");
  EXPECT_TRUE(checkpoints_in(folder_.path("out/checkpoints")).empty());
  EXPECT_TRUE(checkpoints_in(folder_.path("nothing")).empty());
}

TEST_F(Checkpoints, ChangedBytesAreNoticed) {
  write(plan(2, true), 4);
  const std::string file = path(4) + "/rank-00001.safetensors";
  const auto size = std::filesystem::file_size(file);
  {
    std::fstream content(file, std::ios::in | std::ios::out | std::ios::binary);
    content.seekp(static_cast<std::streamoff>(size) - 1);
    content.put('\x7f');
  }
  EXPECT_THAT(error_of<InputError>([&] { Checkpoint(path(4), Checkpoint::Verify::Checksums); }),
              HasSubstr("rank-00001.safetensors: its content is not what was written"));
  std::filesystem::resize_file(file, size - 1);
  EXPECT_THAT(error_of<InputError>([&] { Checkpoint(path(4), Checkpoint::Verify::Sizes); }),
              HasSubstr("bytes, its checkpoint was written with"));
}

TEST_F(Checkpoints, HostileManifestsAreRefused) {
  const auto refusal = [&](const std::string& files) {
    folder_.file(
        "checkpoint.json",
        R"({"schema":"shardplan/checkpoint/1","step":1,"sequences":0,"files":)" + files + "}");
    return error_of<InputError>(
        [&] { Checkpoint(folder_.path(""), Checkpoint::Verify::Checksums); });
  };
  EXPECT_THAT(refusal(R"([{"name":"../x","bytes":1,"crc32c":0}])"),
              HasSubstr("/files/0/name: expected a file of this folder"));
  EXPECT_THAT(refusal(R"([{"name":"x","bytes":1,"crc32c":0}])"), HasSubstr("cannot read"));
  EXPECT_THAT(refusal("3"), HasSubstr("/files"));
}

TEST_F(Checkpoints, OfAnotherModelAreRefused) {
  write(plan(1, false), 4);
  Plan other = plan(1, false);
  other.units[0].parameters[0].name = "another";
  EXPECT_THAT(error_of<InputError>(
                  [&] { Checkpoint(path(4), Checkpoint::Verify::Sizes).expect_state_of(other); }),
              HasSubstr("of 'another' are missing"));
}

}  // namespace
}  // namespace shardplan
