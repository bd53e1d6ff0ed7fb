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

RunJob run_with(const std::string& tokens, Dtype dtype) {
  RunJob run;
  run.tokens = tokens;
  run.token_dtype = dtype;
  return run;
}

TEST(TokenFile, TargetsAreInputsOneLater) {
  const ScratchFolder folder;
  for (const auto& [dtype, bytes] : {std::pair{Dtype::UInt16, 2}, std::pair{Dtype::UInt32, 4}}) {
    const TokenFile file(run_with(folder.file("tokens.bin", counting(321, bytes)), dtype), 4);
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
  EXPECT_EQ(TokenFile(run_with(path, Dtype::UInt16), 4).sequences(), 1);
  EXPECT_THAT(error_of<InputError>([&] { TokenFile file(run_with(path, Dtype::UInt16), 8); }),
              HasSubstr("8 tokens are too few, a sequence of 8 needs 9"));
}

TEST(TokenFile, ATokenOutsideTheVocabularyIsNamedWithItsPosition) {
  const ScratchFolder folder;
  const TokenFile file(run_with(folder.file("t.bin", counting(100, 2)), Dtype::UInt16), 10);
  std::vector<std::int32_t> out(10);
  file.read(3, 0, 40, out);
  EXPECT_THAT(error_of<InputError>([&] { file.read(3, 1, 40, out); }),
              HasSubstr("t.bin: token 40 at position 40 is not below the vocabulary's 40"));
}

TEST(TokenFile, FilesThatAreNoTokensAreRefused) {
  const ScratchFolder folder;
  const auto error = [](const std::string& path, Dtype dtype) {
    return error_of<InputError>([&] { TokenFile file(run_with(path, dtype), 4); });
  };
  EXPECT_THAT(error("", Dtype::UInt16), HasSubstr("run.tokens: missing"));
  EXPECT_THAT(error(folder.path("nowhere"), Dtype::UInt16), HasSubstr("nowhere: cannot read"));
  EXPECT_THAT(error(folder.path(""), Dtype::UInt16), HasSubstr("not a regular file"));
  EXPECT_THAT(error(folder.file("odd", "123"), Dtype::UInt16), HasSubstr("no whole number"));
  EXPECT_THAT(error(folder.file("empty", ""), Dtype::UInt16), HasSubstr("0 tokens are too few"));
  EXPECT_THAT(error(folder.file("text", "12345678"), Dtype::Float32), HasSubstr("token_dtype"));
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
  EXPECT_THAT(error("[[[[5,4]],[[3,10]]]]"), HasSubstr("/0/1/0/1: expected a sequence number"));
  EXPECT_THAT(error("[[[[5,4]],[[3,-1]]]]"), HasSubstr("/0/1/0/1"));
  EXPECT_THAT(error("[[[[5,4]],[[3,1.5]]]]"), HasSubstr("/0/1/0/1"));
  EXPECT_THAT(error("[[[[5,4]],[[3]]]]"), HasSubstr("/0/1/0: expected a list of 2 sequences"));
  EXPECT_THAT(error("[[[[5,4]],[]]]"), HasSubstr("/0/1: expected a list of 1 micro-steps"));
  EXPECT_THAT(error("[[[[5,4]]]]"), HasSubstr("/0: expected a list of 2 ranks, got 1"));
  EXPECT_THAT(error("[7]"), HasSubstr("/0: expected a list of 2 ranks, got number"));
  EXPECT_THAT(error("[]"), HasSubstr("expected a list of 1 steps or more, got 0"));
  EXPECT_THAT(error("{\"a\":1}"), HasSubstr("expected a list of 1 steps"));
  EXPECT_THAT(error("[[["), HasSubstr("not valid JSON"));
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

}  // namespace
}  // namespace shardplan
