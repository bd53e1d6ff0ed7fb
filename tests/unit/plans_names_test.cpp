#include "plans/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardplan {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<Spellings> kGpus{{"a100-sxm-80", "A100 SXM4 80GB", "A100 80GB"},
                                   {"a100-pcie-80", "A100 PCIe 80GB"},
                                   {"h100-sxm-80", "H100 SXM5 80GB"},
                                   {"h100-pcie-80", "H100 PCIe 80GB"},
                                   {"h200", "H200 SXM"},
                                   {"b200", "B200 SXM"},
                                   {"gb200", "GB200 (per GPU)"},
                                   {"l4", "L4"},
                                   {"l40", "L40"},
                                   {"a10", "A10"},
                                   {"a10g", "A10G (AWS)"},
                                   {"rtx-4090", "GeForce RTX 4090"}};

std::string match(std::string_view wanted) {
  return kGpus[match_catalogue("GPU", wanted, kGpus)].front();
}

std::string complaint(std::string_view wanted) {
  try {
    return "matched " + match(wanted);
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Catalogue, IgnoresCaseSeparatorsAndVendorWords) {
  for (const char* spelling : {"rtx-4090", "RTX 4090", "rtx_4090", "rtx4090", "GeForce RTX 4090",
                               "NVIDIA GeForce RTX 4090", "4090"})
    EXPECT_EQ(match(spelling), "rtx-4090") << spelling;
}

TEST(Catalogue, IgnoresTheUnitOfMemory) {
  EXPECT_EQ(match("H100-SXM-80"), "h100-sxm-80");
  EXPECT_EQ(match("h100 sxm 80 GB"), "h100-sxm-80");
  EXPECT_EQ(match("H100SXM80GB"), "h100-sxm-80");
}

TEST(Catalogue, AnEqualSpellingWinsOverLongerOnes) {
  EXPECT_EQ(match("A100 80GB"), "a100-sxm-80");
  EXPECT_EQ(match("l4"), "l4");
  EXPECT_EQ(match("a10"), "a10");
  EXPECT_EQ(match("A10G"), "a10g");
}

TEST(Catalogue, AGb200IsNoB200) {
  EXPECT_EQ(match("GB200"), "gb200");
  EXPECT_EQ(match("B200"), "b200");
  EXPECT_EQ(match("NVIDIA GB200"), "gb200");
}

TEST(Catalogue, WordsMayComeInAnyOrder) { EXPECT_EQ(match("80GB H100 PCIe"), "h100-pcie-80"); }

TEST(Catalogue, ListsTheCandidatesWhenSeveralMatch) {
  EXPECT_THAT(complaint("h100"),
              AllOf(HasSubstr("h100-sxm-80, h100-pcie-80"), Not(HasSubstr("h200"))));
}

TEST(Catalogue, NamesTheNearestWhenNoneMatches) {
  EXPECT_THAT(complaint("h210"), HasSubstr("did you mean 'h200'?"));
}

TEST(Catalogue, RefusesEmptyAndEndlessNames) {
  EXPECT_THAT(complaint(""), HasSubstr("unknown GPU ''"));
  EXPECT_THAT(complaint("---"), HasSubstr("unknown GPU"));
  EXPECT_LT(complaint(std::string(1 << 20, 'h')).size(), 1000u);
}

TEST(Catalogue, TellsVersionNumbersFromLists) {
  const std::vector<Spellings> presets{{"llama-3-8b", "meta-llama/Meta-Llama-3-8B"},
                                       {"llama-3.1-8b", "meta-llama/Llama-3.1-8B"}};
  EXPECT_EQ(match_catalogue("preset", "Llama 3 8B", presets), 0u);
  EXPECT_EQ(match_catalogue("preset", "meta-llama/Meta-Llama-3-8B", presets), 0u);
  EXPECT_EQ(match_catalogue("preset", "Llama-3.1-8B", presets), 1u);
}

TEST(UnknownName, AsksOnlyWhenACandidateIsNear) {
  const std::vector<std::string> known{"FULL_SHARD", "DDP"};
  EXPECT_EQ(unknown_name("strategy", "full_shrd", known),
            "unknown strategy 'full_shrd'; did you mean 'FULL_SHARD'? known: FULL_SHARD, DDP");
  EXPECT_EQ(unknown_name("strategy", "zzzzzz", known),
            "unknown strategy 'zzzzzz'; known: FULL_SHARD, DDP");
}

}  // namespace
}  // namespace shardplan
