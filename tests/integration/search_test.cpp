#include "tools/search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plans/error.h"
#include "plans/job_reader.h"
#include "tests/unit/scratch_folder.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Hardware& hardware() {
  static const Hardware read = Hardware::read(data_folder());
  return read;
}

Job job_of(const std::string& yaml) { return parse_job(yaml, "job.yaml", hardware(), {}); }

class Search : public ::testing::Test {
 protected:
  /// GPT-2 with seven blocks on a few GPUs: some 500 candidates, many of which do not fit.
  Search()
      : job_(job_of(fmt::format("model: {{hf_config: {}}}\n"
                                "cluster: {{gpu: rtx-3090, gpus_per_node: 4}}\n"
                                "strategy: {{mixed_precision: {{param: bfloat16}}}}\n"
                                "training: {{sequence_length: 1024}}",
                                folder_.file("config.json", R"({"model_type": "gpt2", "n_layer": 7,
      "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})")))) {
    std::vector<GpuOffer> offers{offer_from("rtx-3090:4:0.4", "test", hardware()),
                                 offer_from("a100-sxm-40:8:2.5", "test", hardware())};
    for (GpuOffer& offer : offers)
      offer.gpu.memory_bytes /= 4;
    using Kind = ActivationCheckpointing::Kind;
    space_ = usual_space(job_, offers);
    space_.checkpointing = {
        {.kind = Kind::None}, {.kind = Kind::Every, .every = 2}, {.kind = Kind::Full}};
    space_.micro_batches = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  }

  const testing::ScratchFolder folder_;
  const Job job_;
  SearchSpace space_;
};

SearchResult searched(const Job& job, const SearchSpace& space, const SearchQuestion& question) {
  const Evaluator evaluator(job, space.checkpointing, hardware());
  static Candidates candidates;  // the result points into it
  candidates = candidates_of(job, space);
  return search(candidates, question, evaluator, [](std::size_t) {});
}

TEST_F(Search, FindsWhatTryingEverythingFinds) {
  const Evaluator evaluator(job_, space_.checkpointing, hardware());
  std::vector<Outcome> allowed;  // of all candidates, each planned in full
  const Candidates candidates = candidates_of(job_, space_);
  EXPECT_GE(candidates.all.size(), 500U);
  for (const Candidate& candidate : candidates.all) {
    const Outcome outcome = evaluator.outcome(candidate.job, evaluator.full_plan(candidate.job));
    if (outcome.allowed(candidate.job, {})) allowed.push_back(outcome);
  }
  for (const Objective objective : {Objective::Cost, Objective::Time, Objective::Memory}) {
    const auto value = [&](const Outcome& outcome) { return outcome.value(objective); };
    const SearchResult result = searched(job_, space_, {.objective = objective, .limits = {}});
    ASSERT_FALSE(result.best.empty());
    EXPECT_EQ(value(result.best.front().outcome),
              std::ranges::min(allowed, {}, value).value(objective))
        << to_string(objective);
    EXPECT_EQ(result.considered,
              result.too_large + result.hopeless + result.estimated + result.confirmed);
    EXPECT_LT(result.confirmed, result.considered / 3);
    EXPECT_GT(result.too_large + result.hopeless, 0U);
  }
}

TEST_F(Search, StaysWithinTheLimits) {
  SearchQuestion question{.objective = Objective::Cost, .limits = {.tokens = 1e9}};
  const Outcome cheapest = searched(job_, space_, question).best.front().outcome;
  question.limits.deadline_s = cheapest.per_token_s * 1e9 / 2;
  const SearchResult faster = searched(job_, space_, question);
  ASSERT_FALSE(faster.best.empty());
  EXPECT_LE(faster.best.front().outcome.per_token_s * 1e9, *question.limits.deadline_s);
  EXPECT_GT(faster.best.front().outcome.value(Objective::Cost), cheapest.value(Objective::Cost));
  question.limits.budget = cheapest.value(Objective::Cost) * 1e9 / 2;
  EXPECT_TRUE(searched(job_, space_, question).best.empty());
}

TEST_F(Search, RunnersUpAreOfOtherKinds) {
  const SearchResult result = searched(job_, space_, {});
  ASSERT_GT(result.best.size(), 1U);
  for (std::size_t a = 0; a < result.best.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NE(result.best[a].candidate->group, result.best[b].candidate->group);
      EXPECT_GE(result.best[a].outcome.value(Objective::Time),
                result.best[b].outcome.value(Objective::Time));
    }
}

TEST_F(Search, OfDeepSpeedsJobsStaysWithDeepSpeed) {
  Job job = job_;
  job.strategy.engine = Engine::DeepSpeed;
  job.strategy.sharding = Strategy::Zero3;
  const Candidates candidates = candidates_of(job, usual_space(job, {offer_of(job.cluster)}));
  const auto stays = [](const Candidate& one) {
    return one.job.strategy.engine == Engine::DeepSpeed;
  };
  EXPECT_FALSE(candidates.all.empty());
  EXPECT_TRUE(std::ranges::all_of(candidates.all, stays));
}

TEST_F(Search, AGlobalBatchIsMadeUpByMicroSteps) {
  space_.global_batch = 24;
  for (const Candidate& candidate : candidates_of(job_, space_).all) {
    const TrainingJob& training = candidate.job.training;
    EXPECT_EQ(
        training.micro_batch * training.gradient_accumulation.steps * candidate.job.world_size(),
        24);
  }
}

TEST_F(Search, OneRankShardsNothingAndHybridGroupsAreSmallerThanTheWorld) {
  for (const Candidate& candidate : candidates_of(job_, space_).all) {
    const Strategy sharding = candidate.job.strategy.sharding;
    if (candidate.job.world_size() == 1) {
      EXPECT_EQ(sharding, Strategy::Ddp);
    }
    if (candidate.job.cluster.nodes == 1) {
      EXPECT_NE(sharding, Strategy::HybridShard);
    }
  }
}

TEST(SearchSpace, OffersSayWhatIsWrong) {
  const auto read = [](const std::string& text) {
    return [text] { offer_from(text, "--available", hardware()); };
  };
  EXPECT_THAT(read("h100-sxm-80"), ThrowsMessage<InputError>(HasSubstr("expected GPU:COUNT")));
  EXPECT_THAT(read("h100-sxm-80:some"), ThrowsMessage<InputError>(HasSubstr("some")));
  EXPECT_THAT(read("h100-sxm-80:8:cheap"), ThrowsMessage<InputError>(HasSubstr("cheap")));
  EXPECT_EQ(offer_from("h100-sxm-80:8:2.5", "", hardware()).price_per_hour, 2.5);
}

}  // namespace
}  // namespace shardplan
