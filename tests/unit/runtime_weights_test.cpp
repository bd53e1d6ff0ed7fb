#include "runtime/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "plans/error.h"
#include "runtime/initial_values.h"
#include "runtime/unit_layout.h"
#include "tests/unit/scratch_folder.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ScratchFolder;

std::vector<float> drawn(std::uint64_t seed, const std::string& name, std::int64_t first,
                         std::int64_t elems) {
  std::vector<float> values(elems);
  initial_values({Initializer::Kind::Normal, 2.0}, seed, name, first, values);
  return values;
}

/// "a" [2, 2] at 0, a gap of 2, "b" [3] at 6, padding to 10; cut in halves for two ranks.
Plan plan_of_one_unit() {
  Plan plan;
  plan.mesh.shard = 2;
  plan.units = {{.name = "unit",
                 .parameters = {{"m.a", {2, 2}, {Initializer::Kind::Ones, 0}, 0, 4},
                                {"m.b", {3}, {Initializer::Kind::Normal, 1}, 6, 3}},
                 .slices = {{.elems = 10, .valid = 9}},
                 .elems = 9,
                 .padded_elems = 10,
                 .shard_elems = 5}};
  return plan;
}

TEST(InitialValues, DependOnSeedNameAndIndexAlone) {
  const std::vector<float> whole = drawn(1, "w", 0, 100);
  const std::vector<float> part = drawn(1, "w", 60, 40);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 60));
  EXPECT_NE(whole, drawn(2, "w", 0, 100));
  EXPECT_NE(whole, drawn(1, "v", 0, 100));
}

TEST(InitialValues, HaveTheMomentsOfANormalDistribution) {
  const std::vector<float> values = drawn(3, "w", 0, 100000);
  double mean = 0;
  double square = 0;
  double fourth = 0;
  for (const float value : values) {
    mean += value / 1e5;
    square += value * value / 1e5;
    fourth += std::pow(value, 4) / 1e5;
  }
  EXPECT_NEAR(mean, 0, 0.03);
  EXPECT_NEAR(square, 4, 0.1);
  EXPECT_NEAR(fourth, 3 * 16, 3);
}

/// The pieces in elements [at, at + elems) of a rank's shard of the only unit.
std::vector<Piece> pieces(const Plan& plan, std::int64_t rank, std::int64_t at,
                          std::int64_t elems) {
  return pieces_of(plan, plan.units[0], rank, {0, at, elems});
}

TEST(UnitLayout, PiecesAreCutAtTheShardsBorders) {
  const Plan plan = plan_of_one_unit();
  const std::vector<Piece> first = pieces(plan, 0, 0, 5);
  ASSERT_EQ(first.size(), 1);
  EXPECT_EQ(first[0].elems, 4);
  const std::vector<Piece> second = pieces(plan, 1, 2, 3);
  ASSERT_EQ(second.size(), 1);
  EXPECT_EQ(second[0].parameter, 1);
  EXPECT_EQ(second[0].first, 1);
  EXPECT_EQ(second[0].at, 0);
  EXPECT_EQ(second[0].elems, 2);
}

TEST(UnitLayout, AShardHoldsItsPartOfEverySlice) {
  // "a" is cut by rows; of "b", which has one row more than the ranks, the second has one of two.
  Plan plan = plan_of_one_unit();
  plan.units[0].slices = {{.at = 0, .elems = 4, .valid = 4}, {.at = 4, .elems = 4, .valid = 3}};
  plan.units[0].parameters[1].at = 4;
  plan.units[0].padded_elems = 8;
  plan.units[0].shard_elems = 4;
  const std::vector<Piece> shard = pieces(plan, 1, 0, 4);
  ASSERT_EQ(shard.size(), 2);
  EXPECT_EQ(shard[0].first, 2);
  EXPECT_EQ(shard[0].elems, 2);
  EXPECT_EQ(shard[1].parameter, 1);
  EXPECT_EQ(shard[1].first, 2);
  EXPECT_EQ(shard[1].at, 2);
  EXPECT_EQ(shard[1].elems, 1);
}

TEST(Weights, PaddingIsZeroAndShardsAreSlicesOfTheWhole) {
  Plan plan = plan_of_one_unit();
  std::vector<float> shards(10, -1);
  for (int rank = 0; rank < 2; ++rank)
    WeightSource(plan).read(plan.units[0], pieces(plan, rank, 0, 5),
                            std::span(shards).subspan(5 * rank, 5));
  EXPECT_THAT(std::vector<float>(shards.begin(), shards.begin() + 6),
              ElementsAre(1, 1, 1, 1, 0, 0));
  EXPECT_NE(shards[6], 0);
  EXPECT_EQ(shards[9], 0);
  plan.units[0].shard_elems = 10;
  std::vector<float> whole(10, -1);
  WeightSource(plan).read(plan.units[0], pieces(plan, 0, 0, 10), whole);
  EXPECT_EQ(whole, shards);
}

TEST(Weights, WhatIsWrittenIsReadBack) {
  const ScratchFolder folder;
  Plan plan = plan_of_one_unit();
  plan.job.run.output = folder.path("out");
  WeightSink sink(plan);
  const std::vector<float> flat{0, 1, 2, 3, -1, -1, 6, 7, 8, -1};
  sink.write(plan.units[0], pieces(plan, 1, 0, 5), std::span(flat).subspan(5));
  sink.write(plan.units[0], pieces(plan, 0, 0, 5), std::span(flat).first(5));
  sink.commit();
  plan.job.run.weights = folder.path("out");
  plan.units[0].shard_elems = 10;
  std::vector<float> read(10);
  WeightSource(plan).read(plan.units[0], pieces(plan, 0, 0, 10), read);
  EXPECT_THAT(read, ElementsAre(0, 1, 2, 3, 0, 0, 6, 7, 8, 0));
}

class WeightFiles : public ::testing::Test {
 protected:
  /// The error for a file with these two tensors in place of m.a [2, 2] and m.b [3].
  std::string error_with(const std::vector<SafetensorsWriter::Entry>& entries) {
    const std::string path = folder_.path("model.safetensors");
    SafetensorsWriter(path, entries).commit();
    plan_.job.run.weights = path;
    return error_of<InputError>([&] { WeightSource source(plan_); });
  }

  ScratchFolder folder_;
  Plan plan_ = plan_of_one_unit();
};

TEST_F(WeightFiles, AMissingTensorIsNamed) {
  EXPECT_THAT(error_with({{"m.a", {2, 2}}}), HasSubstr("tensor 'm.b' is missing"));
}

TEST_F(WeightFiles, AnotherShapeIsNamed) {
  EXPECT_THAT(error_with({{"m.a", {4}}, {"m.b", {3}}}),
              HasSubstr("tensor 'm.a' has shape [4], the model needs [2, 2]"));
}

TEST_F(WeightFiles, NamesMayLackTheModelsPrefix) {
  const std::string path = folder_.path("model.safetensors");
  const std::vector<SafetensorsWriter::Entry> entries{{"a", {2, 2}}, {"b", {3}}, {"more", {1}}};
  SafetensorsWriter(path, entries).commit();
  plan_.job.run.weights = path;
  EXPECT_NO_THROW(WeightSource source(plan_));
}

}  // namespace
}  // namespace shardplan
