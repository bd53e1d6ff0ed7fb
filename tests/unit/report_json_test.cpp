#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plans/error.h"
#include "plans/report.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;

Plan empty_plan() {
  Plan plan;
  plan.parameter_count = 7;
  return plan;
}

Report full_report() {
  Report report;
  report.plan_hash = "00ff";
  report.world_size = 2;
  report.fits = true;
  report.limit_bytes = 1000;
  report.limit_from = "memory_bytes of mine";
  RankMemory memory;
  memory.peak_allocated_bytes = 600;
  memory.peak_reserved_bytes = 600;
  memory.peak_device_bytes = 700;
  memory.peak_phase = "backward";
  memory.peak_at = "gather";
  memory.at_peak = CategoryBytes{1, 2, 3, 4, 5, 6, 7, 8, 9};
  memory.device_context_bytes = 100;
  memory.communicator_bytes = 0;
  memory.phases[static_cast<int>(RunPhase::Backward)] = {600, 300, "gather", memory.at_peak};
  report.ranks = {{"0-1", memory}};
  report.arena = {600, 590};
  report.collectives = {{"all_gather", "forward", "root", Dtype::BFloat16, 10, 20, 2}};
  report.bytes_sent_per_rank = 10;
  report.time = {.step_s = 0.5, .tokens_per_s = 8, .tokens_per_s_per_gpu = 4, .total_s = 10.0};
  report.cost = {2.0, std::nullopt, std::nullopt};
  return report;
}

/// Position of each of `keys` in the text, which must not run backwards.
void expect_order(const std::string& text, std::initializer_list<std::string_view> keys) {
  std::size_t at = 0;
  for (const std::string_view key : keys) {
    const std::size_t found = text.find("\"" + std::string(key) + "\":", at);
    ASSERT_NE(found, text.npos) << key << " does not follow in " << text;
    at = found;
  }
}

TEST(ReportJson, PredictionHasTheContractsKeysInOrder) {
  const std::string text = prediction_json(full_report(), empty_plan());
  expect_order(text, {"schema",
                      "job",
                      "plan_hash",
                      "model",
                      "parameters",
                      "trainable_parameters",
                      "buffers_bytes",
                      "world_size",
                      "fits",
                      "limit_bytes",
                      "limit_from",
                      "headroom_bytes",
                      "ranks",
                      "memory",
                      "peak_allocated_bytes",
                      "peak_reserved_bytes",
                      "peak_device_bytes",
                      "peak_phase",
                      "peak_at",
                      "at_peak",
                      "parameters",
                      "gradients",
                      "optimizer_state",
                      "unsharded_parameters",
                      "unsharded_gradients",
                      "communication_buffers",
                      "activations",
                      "temporaries",
                      "inputs",
                      "outside_allocator",
                      "device_context",
                      "communicator",
                      "library_workspace",
                      "host_bytes",
                      "phases",
                      "load",
                      "init",
                      "first_step",
                      "forward",
                      "backward",
                      "peak_bytes",
                      "end_bytes",
                      "at",
                      "optimizer",
                      "accumulate",
                      "save",
                      "arena",
                      "bytes",
                      "live_bound_bytes",
                      "issue_order_bytes",
                      "communication",
                      "collectives",
                      "kind",
                      "phase",
                      "unit",
                      "dtype",
                      "input_bytes",
                      "output_bytes",
                      "group_size",
                      "bytes_sent_per_rank",
                      "time",
                      "step_s",
                      "tokens_per_s",
                      "tokens_per_s_per_gpu",
                      "mfu",
                      "compute_s",
                      "communication_s",
                      "exposed_communication_s",
                      "total_s",
                      "cost",
                      "per_hour",
                      "per_billion_tokens",
                      "total"});
  EXPECT_THAT(text, HasSubstr(R"("headroom_bytes":300)"));
}

TEST(ReportJson, WhatIsNotKnownIsNull) {
  const std::string text = prediction_json({.plan_hash = "0"}, empty_plan());
  for (const char* key : {"fits", "limit_bytes", "headroom_bytes", "bytes_sent_per_rank", "time",
                          "per_hour", "buffers_bytes", "live_bound_bytes"})
    EXPECT_THAT(text, HasSubstr("\"" + std::string(key) + "\":null"));
}

TEST(ReportJson, PredictionHashesThePlanWhenNobodyDid) {
  const std::string text = prediction_json({}, empty_plan());
  EXPECT_THAT(text, HasSubstr("\"plan_hash\":\"" + hash_of(empty_plan()) + "\""));
}

TEST(ReportJson, ComparisonIsOnePredictionARow) {
  const Report report = full_report();
  const Plan plan = empty_plan();
  EXPECT_EQ(comparison_json({{&report, &plan}, {&report, &plan}}),
            R"({"schema":"shardplan/comparison/1","rows":[)" + prediction_json(report, plan) + "," +
                prediction_json(report, plan) + "]}");
}

TEST(ReportJson, ReadsBackAPrediction) {
  const Plan plan = empty_plan();
  const std::string text = prediction_json(full_report(), plan);
  EXPECT_EQ(prediction_json(report_from_json(text, "p.json"), plan), text);
}

TEST(ReportJson, ReadsBackAMeasurement) {
  const Plan plan = empty_plan();
  Report report{.plan_hash = "0", .world_size = 1, .ranks = full_report().ranks};
  report.steps = {{1, 2.5, std::nan(""), 0.1, 0.25}};
  report.time = {.tokens_per_s = 12};
  const std::string text = measurement_json(report, plan);
  EXPECT_THAT(text, HasSubstr(R"("steps":[{"step":1,"loss":2.5,"grad_norm":null,)"));
  EXPECT_THAT(text, HasSubstr(R"("tokens_per_s":12.0)"));
  EXPECT_EQ(measurement_json(report_from_json(text, "run.json"), plan), text);
}

TEST(ReportJson, AcceptsAMeasurementOfAnotherProgram) {
  const Report report = report_from_json(
      R"({"ranks":[{"ranks":"0","memory":{"peak_allocated_bytes":5,"at_peak":{"activations":4},
          "phases":{"forward":{"peak_bytes":3}}}}],"comment":"mine"})",
      "m.json");
  const RankMemory& memory = report.ranks.at(0).memory;
  EXPECT_EQ(memory.peak_allocated_bytes, 5);
  EXPECT_FALSE(memory.peak_device_bytes);
  EXPECT_EQ(memory.at_peak[static_cast<int>(Category::Activations)], 4);
  EXPECT_FALSE(memory.at_peak[static_cast<int>(Category::Parameters)]);
  EXPECT_EQ(memory.phases[static_cast<int>(RunPhase::Forward)].peak_bytes, 3);
  EXPECT_FALSE(memory.phases[static_cast<int>(RunPhase::Forward)].end_bytes);
  EXPECT_FALSE(report.time);
}

TEST(ReportJson, NamesThePlaceOfWhatIsWrong) {
  const auto error_of = [](std::string_view text) -> std::string {
    try {
      report_from_json(text, "m.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(R"({"ranks":[{"ranks":"0","memory":{"peak_device_bytes":1.5}}]})"),
            "m.json: /ranks/0/memory/peak_device_bytes: expected an integer, got 1.5");
  EXPECT_EQ(error_of(R"({"ranks":[{}]})"), "m.json: /ranks/0: 'ranks' is missing");
  EXPECT_THAT(error_of(R"({"schema":"shardplan/plan/1"})"), HasSubstr("m.json: /schema: expected"));
  EXPECT_THAT(error_of(R"({"steps":[{"step":1,"loss":"nan"}]})"), HasSubstr("/steps/0/loss"));
}

}  // namespace
}  // namespace shardplan
