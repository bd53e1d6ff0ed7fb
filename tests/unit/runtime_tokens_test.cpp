#include "runtime/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "plans/error.h"
#include "tests/unit/scratch_folder.h"
#include "tests/unit/two_unit_plan.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ScratchFolder;

/// Tokens 0, 1, 2, ... as little-endian numbers of `bytes` bytes.
std::string counting(int tokens, int bytes) {
  std::string content;
  for (int token = 0; token < tokens; ++token)
    for (int byte = 0; byte < bytes; ++byte)
      content.push_back(byte < 2 ? static_cast<char>(token >> (8 * byte)) : '\0');
  return content;
}

/// Little-endian int32 numbers.
std::string numbers(const std::vector<std::int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int32_t)};
}

TokenFile open(const std::string& path, Dtype dtype, std::int64_t sequence_length) {
  return {path, "tokens", dtype, sequence_length};
}

TEST(TokenFile, TargetsAreInputsOneLater) {
  const ScratchFolder folder;
  for (const auto& [dtype, bytes] : {std::pair{Dtype::UInt16, 2}, std::pair{Dtype::UInt32, 4}}) {
    const TokenFile file = open(folder.file("tokens.bin", counting(321, bytes)), dtype, 4);
    EXPECT_EQ(file.sequences(), 80);
    std::vector<std::int32_t> out(4);
    file.read(79, 0, 1000, out);
    EXPECT_THAT(out, ElementsAre(316, 317, 318, 319));
    file.read(79, 1, 1000, out);
    EXPECT_THAT(out, ElementsAre(317, 318, 319, 320));
  }
}

TEST(TokenFile, TheLastSequenceNeedsItsTarget) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.bin", counting(8, 2));
  EXPECT_EQ(open(path, Dtype::UInt16, 4).sequences(), 1);
  EXPECT_THAT(error_of<InputError>([&] { open(path, Dtype::UInt16, 8); }),
              HasSubstr("8 tokens are too few, a sequence of 8 needs 9"));
}

TEST(TokenFile, ATokenOutsideTheVocabularyIsNamedWithItsPosition) {
  const ScratchFolder folder;
  const TokenFile file = open(folder.file("t.bin", counting(100, 2)), Dtype::UInt16, 10);
  std::vector<std::int32_t> out(10);
  file.read(3, 0, 40, out);
  EXPECT_THAT(error_of<InputError>([&] { file.read(3, 1, 40, out); }),
              HasSubstr("t.bin: token 40 at position 40 is not in the vocabulary, 0 .. 39"));
}

TEST(TokenFile, FilesThatAreNoTokensAreRefused) {
  const ScratchFolder folder;
  const auto error = [](const std::string& path, Dtype dtype) {
    return error_of<InputError>([&] { open(path, dtype, 4); });
  };
  EXPECT_THAT(error(folder.path("nowhere"), Dtype::UInt16), HasSubstr("nowhere: cannot read"));
  EXPECT_THAT(error(folder.path(""), Dtype::UInt16), HasSubstr("not a regular file"));
  EXPECT_THAT(error(folder.file("odd", "123"), Dtype::UInt16), HasSubstr("no whole number"));
  EXPECT_THAT(error(folder.file("empty", ""), Dtype::UInt16), HasSubstr("0 tokens are too few"));
}

TEST(DataOrder, TheDefaultReadsEverySequenceOnceBeforeItStartsAgain) {
  const OrderShape shape{.steps = 5, .ranks = 3, .micro_steps = 2, .micro_batch = 2};
  const DataOrder order("", shape, 24);
  std::set<std::int64_t> seen;
  for (int step = 0; step < 2; ++step)
    for (int rank = 0; rank < 3; ++rank)
      for (int micro = 0; micro < 2; ++micro)
        for (int i = 0; i < 2; ++i)
          seen.insert(order.sequence(step, rank, micro, i));
  EXPECT_EQ(seen.size(), 24);
  EXPECT_EQ(order.sequence(0, 1, 0, 1), 3);
  EXPECT_EQ(order.sequence(0, 0, 1, 0), 6);
  EXPECT_EQ(order.sequence(1, 0, 0, 0), 12);
  EXPECT_EQ(order.sequence(2, 0, 0, 0), 0);
}

TEST(DataOrder, GoesOnWhereAnotherWorldStopped) {
  const OrderShape four{.steps = 10, .ranks = 4, .micro_steps = 2, .micro_batch = 3};
  const OrderShape two{.steps = 10, .ranks = 2, .micro_steps = 1, .micro_batch = 5};
  const TrainingPosition stopped = DataOrder("", four, 1000).position(7);
  EXPECT_EQ(stopped.steps, 7);
  EXPECT_EQ(stopped.sequences, 7 * 4 * 2 * 3);
  const DataOrder order("", two, 1000, stopped);
  EXPECT_EQ(order.sequence(7, 0, 0, 0), 168);
  EXPECT_EQ(order.sequence(8, 1, 0, 2), 168 + 10 + 5 + 2);
  EXPECT_EQ(order.position(9).sequences, 168 + 20);
}

TEST(DataOrder, AFileSaysWhichSequencesEachRankReads) {
  const ScratchFolder folder;
  const OrderShape shape{.steps = 2, .ranks = 2, .micro_steps = 1, .micro_batch = 2};
  const std::string path = folder.file("order.json", "[[[[5,4]],[[3,2]]],[[[1,0]],[[9,8]]]]");
  const DataOrder order(path, shape, 10);
  EXPECT_EQ(order.sequence(0, 0, 0, 0), 5);
  EXPECT_EQ(order.sequence(0, 1, 0, 1), 2);
  EXPECT_EQ(order.sequence(1, 1, 0, 0), 9);
}

TEST(DataOrder, ErrorsPointAtTheirPlace) {
  const ScratchFolder folder;
  const OrderShape shape{.steps = 1, .ranks = 2, .micro_steps = 1, .micro_batch = 2};
  const auto error = [&](const std::string& content) {
    const std::string path = folder.file("order.json", content);
    return error_of<InputError>([&] { DataOrder order(path, shape, 10); });
  };
  EXPECT_THAT(error("[[[[5,4]],[[3,10]]]]"),
              HasSubstr("/0/1/0/1: 10 is out of range, expected 0 to 9"));
  EXPECT_THAT(error("[[[[5,4]],[[3,-1]]]]"), HasSubstr("/0/1/0/1"));
  EXPECT_THAT(error("[[[[5,4]],[[3,1.5]]]]"), HasSubstr("/0/1/0/1"));
  EXPECT_THAT(error("[[[[5,4]],[[3]]]]"), HasSubstr("/0/1/0: expected a list of 2 sequences"));
  EXPECT_THAT(error("[[[[5,4]],[]]]"), HasSubstr("/0/1: expected a list of 1 micro-steps"));
  EXPECT_THAT(error("[[[[5,4]]]]"), HasSubstr("/0: expected a list of 2 ranks, got 1"));
  EXPECT_THAT(error("[7]"), HasSubstr("/0: expected an array, got 7"));
  EXPECT_THAT(error("[]"), HasSubstr("expected a list of 1 steps or more, got 0"));
  EXPECT_THAT(error("{\"a\":1}"), HasSubstr("expected an array"));
  EXPECT_THAT(error("[[["), HasSubstr("this is not JSON"));
}

TEST(Batches, RanksReadTheirOwnSequences) {
  const ScratchFolder folder;
  const std::string tokens = counting(13, 2) + counting(13, 2) + counting(13, 2);
  const Plan plan = testing::two_unit_plan(
      {.world = 2, .tokens = folder.file("tokens.bin", tokens), .output = ""});
  EXPECT_EQ(micro_steps_of(plan), 1);
  const Batches batches(plan);
  std::vector<std::int32_t> out(8);
  batches.read(Source::Tokens, 0, 1, 0, out);
  EXPECT_THAT(out, ElementsAre(8, 9, 10, 11, 12, 0, 1, 2));
  batches.read(Source::Targets, 0, 1, 0, out);
  EXPECT_THAT(out, ElementsAre(9, 10, 11, 12, 0, 1, 2, 3));
}

/// Two sequences of 4 tokens; the tests change the job of this plan.
Plan plan_of_eight_tokens(const ScratchFolder& folder) {
  return testing::two_unit_plan(
      {.world = 1, .tokens = folder.file("tokens.bin", counting(9, 2)), .output = ""});
}

TEST(Batches, LabelsReplaceTheTargetsAndMayBeIgnored) {
  const ScratchFolder folder;
  Plan plan = plan_of_eight_tokens(folder);
  plan.job.run.labels =
      folder.file("labels.bin", numbers({-100, 5, -100, 3, 2, 1, -100, -100, 12}));
  const Batches batches(plan);
  std::vector<std::int32_t> out(8);
  batches.read(Source::Tokens, 0, 0, 0, out);
  EXPECT_THAT(out, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  batches.read(Source::Targets, 0, 0, 0, out);
  EXPECT_THAT(out, ElementsAre(5, -100, 3, 2, 1, -100, -100, 12));
}

TEST(Batches, LabelsThatAreNoTargetsAreRefused) {
  const ScratchFolder folder;
  Plan plan = plan_of_eight_tokens(folder);
  std::vector<std::int32_t> out(8);
  const auto error = [&](const std::vector<std::int32_t>& labels) {
    plan.job.run.labels = folder.file("labels.bin", numbers(labels));
    return error_of<InputError>([&] { Batches(plan).read(Source::Targets, 0, 0, 0, out); });
  };
  EXPECT_THAT(error({0, 1, 2, 3, 4, 5, 6, 7, -1}), HasSubstr("label -1 at position 8"));
  EXPECT_THAT(error({0, 1, 2, 3, 4, 5, 6, 7}), HasSubstr("8 labels, but"));
}

TEST(Batches, AJobWithoutTokensIsRefused) {
  const ScratchFolder folder;
  Plan plan = plan_of_eight_tokens(folder);
  const auto error = [&] { return error_of<InputError>([&] { const Batches batches(plan); }); };
  plan.job.run.token_dtype = Dtype::Float32;
  EXPECT_THAT(error(), HasSubstr("run.token_dtype: float32"));
  plan.job.run.tokens.clear();
  EXPECT_THAT(error(), HasSubstr("run.tokens: missing"));
}

}  // namespace
}  // namespace shardplan
