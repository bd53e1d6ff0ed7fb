#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/import/batch_sizes.h"
#include "tests/unit/import_testing.h"
#include "tests/unit/scratch_folder.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Imported import(const std::string& json, ImportOptions options = {.hardware = import_hardware()}) {
  return import_deepspeed(json, "ds.json", options);
}

/// A file with a micro-batch of 1, these fields of zero_optimization, and these at the top.
std::string zero_file(const std::string& zero,
                      const std::string& top = R"("bf16": {"enabled": true})") {
  return fmt::format(R"({{"train_micro_batch_size_per_gpu": 1, {}, "zero_optimization": {{{}}}}})",
                     top, zero);
}
Imported zero(const std::string& options) { return import(zero_file(options)); }
std::string complaint(const std::string& json) {
  return complaint_of([&] { import(json); });
}
std::string zero_complaint(const std::string& options) { return complaint(zero_file(options)); }

using importing::BatchSizes;
using importing::resolve_batch_sizes;

TEST(BatchTriangle, IsCompletedWithRoundedQuotients) {
  EXPECT_EQ(resolve_batch_sizes({128, 2, {}}, 8), (BatchSizes{128, 2, 8}));
  EXPECT_EQ(resolve_batch_sizes({128, {}, 4}, 8), (BatchSizes{128, 4, 4}));
  EXPECT_EQ(resolve_batch_sizes({{}, 8, 2}, 8), (BatchSizes{128, 8, 2}));
  EXPECT_EQ(resolve_batch_sizes({64, {}, {}}, 8), (BatchSizes{64, 8, 1}));
  EXPECT_EQ(resolve_batch_sizes({{}, 4, {}}, 8), (BatchSizes{32, 4, 1}));
}

TEST(BatchTriangle, ErrorsNameTheFourNumbersAndWhatIsValid) {
  EXPECT_THAT(
      complaint_of([] {
        resolve_batch_sizes({256, 2, 18}, 8);
      }),
      HasSubstr("256 != 2 * 18 * 8; nearest valid: gradient_accumulation_steps 16 (256 / (2 "
                "* 8) = 16), or train_batch_size 288 (2 * 18 * 8 = 288)"));
  EXPECT_THAT(complaint_of([] {
                resolve_batch_sizes({256, 4, 8}, 1);
              }),  // users/cases cfg-11
              HasSubstr("256 != 4 * 8 * 1; nearest valid: gradient_accumulation_steps 64 (256 / (4 "
                        "* 1) = 64), or train_micro_batch_size_per_gpu 32"));
  EXPECT_THAT(complaint_of([] {
                resolve_batch_sizes({4, {}, {}}, 8);
              }),
              HasSubstr("4 != 0 * 1 * 8"));
  EXPECT_THAT(complaint_of([] { resolve_batch_sizes({{}, {}, 2}, 8); }), HasSubstr("is needed"));
}

TEST(BatchTriangle, ThreeNumbersFixTheWorld) {
  const std::string file = R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4,
                               "gradient_accumulation_steps": 4})";
  EXPECT_EQ(import(file).job.world_size(), 16);
  EXPECT_EQ(import(file).job.cluster.nodes, 2);
  EXPECT_THAT(complaint_of([&] { import(file, {.hardware = import_hardware(), .gpus = 8}); }),
              HasSubstr("256 != 4 * 4 * 8"));
}

TEST(DeepSpeed, StagesAreStrategiesWithTheirBytes) {
  struct Row {
    int stage;
    Strategy sharding;
    std::int64_t replicated, sharded;
  };
  for (const Row& row : {Row{0, Strategy::Ddp, 16, 0}, Row{1, Strategy::Zero1, 4, 12},
                         Row{2, Strategy::Zero2, 2, 14}, Row{3, Strategy::Zero3, 0, 16}}) {
    const Imported imported = zero(fmt::format(R"("stage": {})", row.stage));
    EXPECT_EQ(imported.job.strategy.sharding, row.sharding);
    EXPECT_EQ(imported.job.strategy.engine, Engine::DeepSpeed);
    EXPECT_EQ(fact(imported, "state_bytes_per_param_adamw.replicated"), FactValue(row.replicated));
    EXPECT_EQ(fact(imported, "state_bytes_per_param_adamw.sharded"), FactValue(row.sharded));
    EXPECT_EQ(fact(imported, "overlap_comm"), FactValue(row.stage == 3));
  }
  EXPECT_THAT(zero_complaint(R"("stage": 4)"), HasSubstr("zero_optimization.stage: expected an "
                                                         "integer from 0 to 3, found '4'"));
}

// oracle/deepspeed: without bf16 a second fp32 copy is kept as master at stages 1 to 3.
TEST(DeepSpeed, Fp32KeepsASecondCopy) {
  const std::string fp32 = R"("steps_per_print": 1)";
  EXPECT_EQ(fact(import(zero_file(R"("stage": 2)", fp32)), "state_bytes_per_param_adamw.sharded"),
            FactValue(std::int64_t{16}));
  EXPECT_EQ(
      fact(import(zero_file(R"("stage": 0)", fp32)), "state_bytes_per_param_adamw.replicated"),
      FactValue(std::int64_t{16}));
}

TEST(DeepSpeed, MasterWeightsAndStatesMayBe16Bits) {
  const std::string bf16 = R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                                       "bf16_optimizer_states": true})";
  const Imported imported = import(zero_file(R"("stage": 3)", bf16));
  EXPECT_EQ(fact(imported, "state_bytes_per_param_adamw.sharded"), FactValue(std::int64_t{10}));
  EXPECT_EQ(imported.job.training.optimizer.state_dtype, Dtype::BFloat16);
  EXPECT_THAT(complaint(zero_file(R"("stage": 0)", bf16)), HasSubstr("need ZeRO stage 1, 2 or 3"));
}

TEST(DeepSpeed, OffloadMovesBytesToTheHost) {
  const Imported imported = zero(R"("stage": 3, "offload_optimizer": {"device": "cpu"},
              "offload_param": {"device": "nvme", "nvme_path": "/local"})");
  EXPECT_EQ(fact(imported, "state_bytes_per_param_adamw.host"), FactValue(std::int64_t{14}));
  EXPECT_EQ(fact(imported, "offload"), FactValue("optimizer state to cpu, parameters to nvme"));
  EXPECT_EQ(imported.job.strategy.deepspeed->offload_param.nvme_path, "/local");
  EXPECT_THAT(zero_complaint(R"("stage": 3, "offload_param": {"device": "nvme"})"),
              HasSubstr("needs its nvme_path"));
  EXPECT_THAT(zero_complaint(R"("stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5})"),
              HasSubstr("ratio: 0.5 needs stage 3"));
  EXPECT_THAT(zero_complaint(R"("stage": 2, "offload_optimizer": {"device": "gpu"})"),
              HasSubstr("known: none, cpu, nvme"));
}

TEST(DeepSpeed, OptionsWithoutEffectAreNamed) {
  EXPECT_THAT(warnings_about(zero(R"("stage": 2, "stage3_prefetch_bucket_size": 5)"),
                             "zero_optimization.stage3_prefetch_bucket_size"),
              HasSubstr("is ignored at stage 2: it is for stage 3"));
  EXPECT_THAT(warnings_about(zero(R"("stage": 2, "offload_param": {"device": "cpu"})"),
                             "zero_optimization.offload_param"),
              HasSubstr("is ignored at stage 2"));
  EXPECT_THAT(warnings_about(zero(R"("stage": 3, "round_robin_gradients": true)"),
                             "zero_optimization.round_robin_gradients"),
              HasSubstr("it is for stages 1 and 2"));
  EXPECT_THAT(warnings_about(zero(R"("stage": 2, "allgather_bucket_size": 5e8)"),
                             "zero_optimization.allgather_bucket_size"),
              HasSubstr("gathers the whole flat buffer"));
}

TEST(DeepSpeed, OldNamesMeanTheNewOnes) {
  const Imported imported =
      zero(R"("stage": 2, "cpu_offload": true, "cpu_offload_use_pin_memory": true)");
  EXPECT_EQ(imported.job.strategy.deepspeed->offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_THAT(warnings_about(imported, "zero_optimization.cpu_offload"),
              HasSubstr("offload_optimizer replaces it"));
  EXPECT_EQ(
      zero(R"("stage": 3, "prefetch_bucket_size": 7)").job.strategy.deepspeed->prefetch_bucket_size,
      7);
  EXPECT_THAT(zero_complaint(R"("stage": 3, "prefetch_bucket_size": 7,
                                "stage3_prefetch_bucket_size": 8)"),
              HasSubstr("is there twice, under two names"));
  const Imported stage1 = import(R"({"train_batch_size": 8, "zero_optimization": true})");
  EXPECT_EQ(stage1.job.strategy.sharding, Strategy::Zero1);
}

TEST(DeepSpeed, HpZHasNoFsdpTwin) {
  const Imported imported = zero(R"("stage": 3, "zero_hpz_partition_size": 8)");
  EXPECT_EQ(imported.job.strategy.deepspeed->zero_hpz_partition_size, 8);
  EXPECT_THAT(std::get<std::string>(fact(imported, "strategy")),
              HasSubstr("no exact FSDP equivalent"));
}

TEST(DeepSpeed, UnknownKeysAreWarnedOfAtTheTopAndRefusedInSections) {
  EXPECT_THAT(warnings_about(import(R"({"train_batch_size": 8, "gradient_cliping": 1.0})"),
                             "gradient_cliping"),
              HasSubstr("DeepSpeed 0.19.8 does not read it; did you mean 'gradient_clipping'?"));
  EXPECT_THAT(zero_complaint(R"("stage": 2, "overlap_com": true)"),
              HasSubstr("unknown field of zero_optimization 'overlap_com'; did you mean "
                        "'overlap_comm'?"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "bf16": {"enable": true}})"),
              HasSubstr("unknown field of bf16 'enable'; did you mean 'enabled'?"));
}

TEST(DeepSpeed, WhatIsRemovedOrNotDataParallelIsRefusedByName) {
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "amp": {"enabled": true}})"),
              HasSubstr("amp: DeepSpeed 0.19.8 has removed it"));
  EXPECT_THAT(zero_complaint(R"("stage": 3, "mics_shard_size": 8)"), HasSubstr("has removed it"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}})"),
              HasSubstr("tensor_parallel.autotp_size: 2 is not supported yet"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "pipeline": {"stages": 4}})"),
              HasSubstr("pipeline.stages: 4 is not supported yet"));
}

TEST(DeepSpeed, PrecisionRules) {
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "bf16": {"enabled": true},
                            "fp16": {"enabled": true}})"),
              HasSubstr("both true"));
  EXPECT_THAT(complaint(zero_file(R"("stage": 0)", R"("bf16": {"enabled": true},
                            "data_types": {"grad_accum_dtype": "fp32"})")),
              HasSubstr("needs ZeRO stage 1, 2 or 3"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "communication_data_type": "float32"})"),
              HasSubstr("known: fp16, bf16, fp32"));
  const Imported fp16 = import(zero_file(R"("stage": 2)", R"("fp16": {"enabled": true,
                            "loss_scale": 128})"));
  EXPECT_EQ(fact(fp16, "compute_dtype"), FactValue("fp16 with a static loss scale of 128"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "fp16": {"enabled": true,
                            "loss_scale_window": 0}})"),
              HasSubstr("fp16.loss_scale_window"));
  const Imported old = import(R"({"train_batch_size": 8, "bfloat16": {"enabled": true}})");
  EXPECT_EQ(old.job.strategy.mixed_precision->param, Dtype::BFloat16);
}

TEST(DeepSpeed, ClipsAtOneUnlessTheFileSaysOtherwise) {
  const Imported silent = zero(R"("stage": 2)");
  EXPECT_EQ(silent.job.training.clip_grad_norm, 1.0);
  EXPECT_THAT(warnings_about(silent, "gradient_clipping"), HasSubstr("clips at 1.0"));
  EXPECT_FALSE(
      import(R"({"train_batch_size": 8, "gradient_clipping": 0})").job.training.clip_grad_norm);
}

TEST(DeepSpeed, AdamDecaysAsAdamW) {
  const Imported imported = import(R"({"train_batch_size": 8, "optimizer": {"type": "Adam",
                            "params": {"lr": 1e-4, "betas": [0.9, 0.95]}}})");
  const OptimizerJob& optimizer = imported.job.training.optimizer;
  EXPECT_EQ(optimizer.name, OptimizerJob::Name::AdamW);
  EXPECT_EQ(optimizer.lr, 1e-4);
  EXPECT_EQ(optimizer.beta2, 0.95);
  EXPECT_EQ(optimizer.weight_decay, 0);
  EXPECT_THAT(warnings_about(imported, "optimizer.type"), HasSubstr("decays as AdamW"));
  const Imported coupled = import(R"({"train_batch_size": 8, "optimizer": {"type": "Adam",
                            "params": {"adam_w_mode": false}}})");
  EXPECT_EQ(coupled.job.training.optimizer.name, OptimizerJob::Name::Adam);
  EXPECT_THAT(warnings_about(import(R"({"train_batch_size": 8, "optimizer": {"type": "Lamb"}})"),
                             "optimizer.type"),
              HasSubstr("Lamb is not supported yet"));
}

TEST(DeepSpeed, Schedulers) {
  const Imported imported = import(R"({"train_batch_size": 8, "scheduler": {
      "type": "WarmupCosineLR", "params": {"warmup_num_steps": 10, "cos_min_ratio": 0.2}}})");
  EXPECT_EQ(imported.job.training.schedule, (ScheduleJob{ScheduleJob::Name::Cosine, 10, 0.2}));
  EXPECT_THAT(warnings_about(imported, "scheduler.params.warmup_type"),
              HasSubstr("log by default"));
}

constexpr const char* kAutoSizes =
    R"("stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
       "stage3_param_persistence_threshold": "auto")";

TEST(DeepSpeed, AutoIsLeftOpenWithWhatDecidesIt) {
  const Imported imported = zero(kAutoSizes);
  ASSERT_GE(imported.open.size(), 3u);
  EXPECT_EQ(imported.open[1].key, "zero_optimization.reduce_bucket_size");
  EXPECT_EQ(imported.open[1].decided_by, "the model: hidden_size x hidden_size");
  EXPECT_EQ(imported.job.strategy.deepspeed->reduce_bucket_size, 500'000'000);
  EXPECT_THAT(warnings_about(import(R"({"train_batch_size": 8, "zero_optimization":
                            {"stage": "auto"}})"),
                             "zero_optimization.stage"),
              HasSubstr("auto is filled by nobody"));
}

// users/cases cfg-05: hidden_size in text_config; 16,777,216, 15,099,494 and 40,960.
TEST(DeepSpeed, AutoSizesFollowFromTheModel) {
  testing::ScratchFolder folder;
  const auto hidden = [&](const std::string& config) {
    return hidden_size_of({.preset = "", .hf_config = folder.file("config.json", config)});
  };
  EXPECT_EQ(hidden(R"({"text_config": {"hidden_size": 4096}})"), 4096);
  EXPECT_EQ(hidden(R"({"hidden_size": 64, "text_config": {"hidden_size": 4096}})"), 64);
  EXPECT_EQ(hidden(R"({"hidden_sizes": [32, 256, 160]})"), 256);
  EXPECT_EQ(hidden("{}"), std::nullopt);
  const Imported imported =
      import(zero_file(kAutoSizes), {.hardware = import_hardware(), .hidden_size = 4096});
  const DeepSpeedOptions& options = *imported.job.strategy.deepspeed;
  EXPECT_EQ(options.reduce_bucket_size, 16'777'216);
  EXPECT_EQ(options.prefetch_bucket_size, 15'099'494);
  EXPECT_EQ(options.param_persistence_threshold, 40'960);
}

TEST(DeepSpeed, AccumulationReducesAsTheStageDoes) {
  const auto sync = [](int stage) {
    return zero(fmt::format(R"("stage": {})", stage)).job.training.gradient_accumulation.sync;
  };
  EXPECT_EQ(sync(1), GradientAccumulation::Sync::Last);
  EXPECT_EQ(sync(2), GradientAccumulation::Sync::Every);
}

TEST(DeepSpeed, ErrorsStandAtLineAndColumn) {
  EXPECT_THAT(
      complaint("{\n  \"train_batch_size\": 8,\n  \"bf16\": {\n    \"enabled\": \"x\"\n  }\n}"),
      StartsWith("ds.json:4:16: bf16.enabled: expected true or false"));
  EXPECT_THAT(complaint("{\"train_batch_size\": 1, \"bf16\": {\"a\": [1, {}], \"b\": 2}}"),
              StartsWith("ds.json:1:34: unknown field of bf16 'a'"));
  EXPECT_THAT(complaint("{\"train_batch_size\": 0}"), StartsWith("ds.json:1:22: "));
  EXPECT_THAT(complaint("{\n\"bf16\": {}, \"fp16\": {\"enabled\":\n3}}"),
              StartsWith("ds.json:3:1: "));
}

TEST(DeepSpeed, HostileFilesEndInOneError) {
  EXPECT_THAT(complaint("{"), HasSubstr("no valid JSON"));
  EXPECT_THAT(complaint("[]"), HasSubstr("expected a mapping"));
  EXPECT_THAT(complaint(std::string(100'000, '[')), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "train_batch_size": 8})"), HasSubstr("twice"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 1e400})"), HasSubstr("no valid JSON"));
  EXPECT_THAT(complaint(R"({"train_batch_size": NaN})"), HasSubstr("no valid JSON"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 99999999999999999999})"),
              HasSubstr("train_batch_size: expected an integer"));
  EXPECT_THAT(complaint(R"({"train_batch_size": -8})"), HasSubstr("expected an integer from 1"));
  EXPECT_THAT(complaint(R"({"train_batch_size": "8"})"), HasSubstr("expected an integer"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "zero_optimization": [3]})"),
              HasSubstr("zero_optimization: expected a mapping, found a list"));
  EXPECT_THAT(complaint(R"({"train_batch_size": 8, "bf16": true})"),
              HasSubstr("bf16: expected a mapping"));
}

}  // namespace
}  // namespace shardplan
