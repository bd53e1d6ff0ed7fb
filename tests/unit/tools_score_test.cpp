#include "tools/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/planner.h"
#include "simulator/simulate.h"
#include "tools/calibration.h"
#include "tools/published_job.h"
#include "tools/score_svg.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Hardware& hardware() {
  static const Hardware catalogue = Hardware::read(data_folder());
  return catalogue;
}

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> entries = read_frameworks(data_folder());
  return entries;
}

/// A small model, as a row of llm-foundry's tables describes its trainings.
CsvRow small_row() {
  return {{"id", "row-1"},
          {"family", "llmfoundry/tiny"},
          {"framework", "Composer + PyTorch FSDP1"},
          {"model_family", "MPT"},
          {"gpu_key", "A100-unspecified-80"},
          {"layers", "2"},
          {"d_model", "256"},
          {"heads", "2"},
          {"vocab", "1024"},
          {"seq_len", "512"},
          {"micro_batch_per_gpu", "4"},
          {"world_size", "16"},
          {"grad_accum", "2"},
          {"strategy_norm", "FULL_SHARD"},
          {"ac_norm", "full"},
          {"pure_data_parallel", "yes"},
          {"outcome", "ok"},
          {"interconnect_inter", "4 x 100 Gb RoCE per node"},
          {"tokens_per_s_per_gpu", "1000"},
          {"other_flags", "FSDP mixed_precision mode=DEFAULT"}};
}

TEST(PublishedJob, SaysWhatTheRowSays) {
  const PublishedJob published = published_job(small_row(), frameworks(), hardware());
  const Job& job = published.job;
  EXPECT_EQ(job.cluster.gpu.key, "a100-sxm-80");
  EXPECT_EQ(job.cluster.gpus_per_node, 8);
  EXPECT_EQ(job.cluster.nodes, 2);
  EXPECT_EQ(job.cluster.network.inter_node_bytes_per_s, 5e10);
  EXPECT_EQ(job.strategy.engine, Engine::Fsdp1);
  EXPECT_EQ(job.strategy.mixed_precision->param, Dtype::BFloat16);
  EXPECT_EQ(job.strategy.mixed_precision->reduce, Dtype::Float32);
  EXPECT_EQ(job.training.micro_batch, 4);
  EXPECT_EQ(job.training.gradient_accumulation.steps, 2);
  EXPECT_EQ(job.training.activation_checkpointing.kind, ActivationCheckpointing::Kind::Full);
  EXPECT_EQ(published.model.parameter_count(),
            1024 * 256 + 512 * 256 + 2 * (12 * 256 * 256 + 13 * 256) + 2 * 256 + 1024 * 256);
  EXPECT_THAT(published.assumed, ElementsAre("GPU form factor"));
}

std::string reason(const std::string& column, const std::string& value) {
  CsvRow row = small_row();
  row[column] = value;
  try {
    published_job(row, frameworks(), hardware());
  } catch (const NotExpressed& why) {
    return why.what();
  }
  return "";
}

TEST(PublishedJob, SaysWhyARowIsNone) {
  EXPECT_EQ(reason("tp", "2"), "tp > 1: not data-parallel alone");
  EXPECT_EQ(reason("outcome", "OOM"), "the run did not end well");
  EXPECT_EQ(reason("layers", ""), "layers is not stated");
  EXPECT_EQ(reason("micro_batch_per_gpu", "2.5"), "micro_batch_per_gpu is no whole number");
  EXPECT_EQ(reason("framework", "Nobody's"), "framework 'Nobody's' is not known");
  EXPECT_EQ(reason("gpu_key", "H900"), "GPU 'H900' is not in the catalogue");
  EXPECT_EQ(reason("world_size", "12"), "world_size does not divide into nodes");
  EXPECT_EQ(reason("strategy_norm", "ZERO9"), "strategy ZERO9 is not planned");
  EXPECT_EQ(reason("task", "QLoRA finetune"), "QLoRA: weights of 4 bits");
  EXPECT_EQ(reason("dtype_norm", "int3"), "products in int3");
  EXPECT_THAT(reason("heads", "3"), HasSubstr("row-1"));
}

TEST(PublishedJob, TakesAPresetWhereOnlyTheNameIsStated) {
  CsvRow row = small_row();
  row["layers"] = "";
  row["model_name"] = "SmolLM3-3B";
  EXPECT_EQ(published_job(row, frameworks(), hardware()).model.parameter_count(), 3'075'098'624);
}

TEST(PublishedJob, ComputesAgainThePartsThatTheRowNames) {
  CsvRow row = small_row();
  row["framework"] = "LLM.Q (CUDA/C++)";
  row["model_family"] = "Llama";
  row["ffn"] = "512";
  row["ac_norm"] = "selective-op";
  row["activation_checkpointing"] = "selective-op(ffn+norm)";
  const auto again =
      published_job(row, frameworks(), hardware()).job.training.activation_checkpointing;
  EXPECT_THAT(again.operators, ElementsAre(OperatorKind::RmsNorm));
  EXPECT_THAT(again.modules, ElementsAre("mlp"));
}

TEST(PublishedJob, ExtrapolatesWhereTheRowLeavesOpenWhatDecides) {
  EXPECT_TRUE(published_plan(small_row(), frameworks(), hardware()).tells_constants());
  CsvRow row = small_row();
  row["ac_norm"] = "";
  EXPECT_FALSE(published_plan(row, frameworks(), hardware()).tells_constants());
}

TEST(Score, PredictsWhatSimulateDoes) {
  CsvRow silent = small_row();
  silent["tokens_per_s_per_gpu"] = "";
  CsvRow other = small_row();
  other["framework"] = "Nobody's";
  const Score result = score({small_row(), silent, other}, frameworks(), hardware(), [](auto) {});
  ASSERT_EQ(result.figures.size(), 1U);
  const PublishedJob published = published_job(small_row(), frameworks(), hardware());
  const Plan plan = make_plan(published.job, published.model);
  const Report report = simulate(plan, hardware().costs(plan.profile));
  EXPECT_DOUBLE_EQ(result.figures[0].predicted, report.time->tokens_per_s_per_gpu);
  EXPECT_DOUBLE_EQ(result.figures[0].error(), report.time->tokens_per_s_per_gpu / 1000 - 1);
  ASSERT_EQ(result.not_expressed.size(), 1U);
  EXPECT_EQ(result.not_expressed[0].reason, "framework 'Nobody's' is not known");
}

TEST(Score, SummariesAreOfAbsoluteErrors) {
  const ErrorSummary summary = summary_of({-0.4, 0.1, 0.2, -0.3, 0});
  EXPECT_EQ(summary.rows, 5U);
  EXPECT_DOUBLE_EQ(summary.median, 0.2);
  EXPECT_DOUBLE_EQ(summary.p90, 0.36);
  EXPECT_DOUBLE_EQ(summary.worst, 0.4);
  EXPECT_DOUBLE_EQ(summary.median_error, 0);
  EXPECT_EQ(summary_of(std::vector<double>{}).rows, 0U);
}

/// Trainings whose measured speeds are what the model predicts with other constants than believed.
TEST(Calibration, FindsTheConstantsThatMadeTheFigures) {
  Constants truth;
  for (const FreeConstant& constant : free_constants())
    truth.push_back(constant.prior * 0.9);
  std::vector<MeasuredTraining> trainings;
  for (const char* gpu : {"A100-SXM-80", "H100-SXM-80"})
    for (const char* tokens : {"512", "4096"}) {
      CsvRow row = small_row();
      row["gpu_key"] = gpu;
      row["seq_len"] = tokens;
      row["d_model"] = "2048";
      const PublishedJob published = published_job(row, frameworks(), hardware());
      trainings.push_back({"", gpu, make_plan(published.job, published.model), 1});
    }
  Predictions asked(trainings, hardware());
  for (std::size_t t = 0; t < trainings.size(); ++t)
    trainings[t].tokens_per_s_per_gpu = asked.errors(truth)[t] + 1;
  Predictions predictions(trainings, hardware());
  const Members all{0, 1, 2, 3};
  const Fit fit = fit_constants(predictions, all, [] {});
  for (const double error : predictions.errors(fit.values))
    EXPECT_NEAR(error, 0, 0.02);
  // Of a part of them, from there on.
  const LinearPredictions linear(predictions, fit.values);
  for (std::size_t t = 0; t < trainings.size(); ++t)
    EXPECT_NEAR(linear(truth)[t], 0, 0.02);
  const Members some{0, 1, 2};
  const Constants again = refit_constants(predictions, some, fit, linear).values;
  for (const std::size_t member : some)
    EXPECT_NEAR(predictions.errors(again)[member], 0, 0.02);
}

TEST(Score, DrawsADotForEveryRow) {
  const Score result = score({small_row(), small_row()}, frameworks(), hardware(), [](auto) {});
  const std::string svg = score_svg(result);
  EXPECT_THAT(svg, ::testing::StartsWith("<svg"));
  std::size_t dots = 0;
  for (std::size_t at = svg.find("<title>row-1"); at != std::string::npos;
       at = svg.find("<title>row-1", at + 1))
    ++dots;
  EXPECT_EQ(dots, 2U);
}

}  // namespace
}  // namespace shardplan
