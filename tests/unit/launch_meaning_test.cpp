#include "tests/oracle/launch_meaning.h"

#include <gtest/gtest.h>

namespace shardplan::oracle {
namespace {

using Words = std::set<std::string>;

TEST(LaunchMeaning, ConceptsHaveOneSpelling) {
  EXPECT_EQ(concepts_of("bfloat16, float32"), (Words{"bf16", "fp32"}));
  EXPECT_EQ(concepts_of("2e8 = 200,000,000 elements"), (Words{"200000000"}));
  EXPECT_EQ(concepts_of("NO_PREFETCH"), (Words{"off"}));
  EXPECT_EQ(concepts_of("_HYBRID_SHARD_ZERO2"), (Words{"hybrid_shard_zero2"}));
  EXPECT_EQ(concepts_of("class LlamaDecoderLayer (+ root)"), (Words{"llamadecoderlayer"}));
  EXPECT_EQ(concepts_of("rank 0 loads, then broadcasts"), (Words{"rank-0", "broadcast"}));
}

TEST(LaunchMeaning, SentencesAgreeByTheirConcepts) {
  EXPECT_TRUE(means_the_same("bf16", "bfloat16 by autocast"));
  EXPECT_TRUE(means_the_same("NONE (key absent)", "off"));
  EXPECT_TRUE(means_the_same("FULL_STATE_DICT", "full_state_dict"));
  EXPECT_TRUE(means_the_same("implicit", "implicit"));
  EXPECT_TRUE(means_the_same("params", "parameters, gradients"));
  EXPECT_TRUE(means_the_same("bf16, from the trainer", "from the trainer (bf16 or fp32)"));
}

TEST(LaunchMeaning, OtherValuesDisagree) {
  EXPECT_FALSE(means_the_same("bf16", "fp16"));
  EXPECT_FALSE(means_the_same("fp32", "fp32 and bf16"));
  EXPECT_FALSE(means_the_same("SHARDED_STATE_DICT", "FULL_STATE_DICT"));
  EXPECT_FALSE(means_the_same("class GPT2Block", "classes GPT2Block and BertLayer"));
  EXPECT_FALSE(means_the_same("off (bucket 0)", "on (bucket 50000000)"));
  EXPECT_FALSE(means_the_same("every rank loads", "rank 0 loads"));
  EXPECT_FALSE(means_the_same("some gradients", "parameters"));
  EXPECT_FALSE(means_the_same("", "anything"));
}

TEST(LaunchMeaning, MissingConceptsAreNamed) {
  EXPECT_EQ(missing_concepts("fsdp_reshard_after_forward is ignored: FULL_SHARD results",
                             "fsdp_reshard_after_forward is not read"),
            (Words{"full_shard", "ignored"}));
}

TEST(LaunchMeaning, FindsTheStrategyThatIsNamedFirst) {
  EXPECT_EQ(first_strategy_in("SHARD_GRAD_OP (nearest); FULL_SHARD shards more"), "SHARD_GRAD_OP");
  EXPECT_EQ(first_strategy_in("_HYBRID_SHARD_ZERO2"), "HYBRID_SHARD_ZERO2");
  EXPECT_EQ(first_strategy_in("DDP (NO_SHARD)"), "NO_SHARD");
  EXPECT_EQ(first_strategy_in("none"), "");
}

}  // namespace
}  // namespace shardplan::oracle
