#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/import_testing.h"
#include "tests/unit/scratch_folder.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Imported import(const std::string& yaml, ImportOptions options = {.hardware = import_hardware()}) {
  return import_accelerate(yaml, "acc.yaml", options);
}

/// An FSDP file for 8 GPUs with these lines in fsdp_config.
std::string fsdp_file(const std::string& lines, const std::string& top = "mixed_precision: bf16") {
  return "distributed_type: FSDP\nnum_processes: 8\n" + top + "\nfsdp_config:\n" + lines;
}
Imported fsdp(const std::string& lines) { return import(fsdp_file(lines)); }
std::string complaint(const std::string& yaml) {
  return complaint_of([&] { import(yaml); });
}
std::string fsdp_complaint(const std::string& lines) { return complaint(fsdp_file(lines)); }

constexpr const char* kWrapped = "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";

TEST(Accelerate, Fsdp1StrategiesHaveNamesAndNumbers) {
  EXPECT_EQ(fsdp("  fsdp_sharding_strategy: SHARD_GRAD_OP\n").job.strategy.sharding,
            Strategy::ShardGradOp);
  EXPECT_EQ(fsdp("  fsdp_sharding_strategy: 3\n").job.strategy.sharding, Strategy::NoShard);
  EXPECT_EQ(fsdp("  fsdp_sharding_strategy: hybrid_shard\n").job.strategy.sharding,
            Strategy::HybridShard);
  EXPECT_EQ(fsdp("  fsdp_sharding_strategy: _HYBRID_SHARD_ZERO2\n").job.strategy.sharding,
            Strategy::HybridShardZero2);
  EXPECT_EQ(fsdp("  sharding_strategy: 2\n").job.strategy.sharding, Strategy::ShardGradOp);
  EXPECT_EQ(fsdp("  fsdp_offload_params: false\n").job.strategy.sharding, Strategy::FullShard);
  EXPECT_THAT(fsdp_complaint("  fsdp_sharding_strategy: FULL_SHRD\n"),
              StartsWith("acc.yaml:5:27: unknown fsdp_config.fsdp_sharding_strategy 'FULL_SHRD'; "
                         "did you mean 'FULL_SHARD'?"));
  EXPECT_THAT(fsdp_complaint("  fsdp_sharding_strategy: 6\n"), HasSubstr("unknown"));
}

TEST(Accelerate, Fsdp1DoesNotReadReshardAfterForward) {
  const Imported imported = fsdp("  fsdp_reshard_after_forward: SHARD_GRAD_OP\n");
  EXPECT_EQ(imported.job.strategy.sharding, Strategy::FullShard);
  EXPECT_EQ(fact(imported, "user_meant"), FactValue("SHARD_GRAD_OP"));
  EXPECT_THAT(warnings_about(imported, "fsdp_reshard_after_forward"),
              HasSubstr("is not read from a file with fsdp_version 1: FULL_SHARD results"));
}

TEST(Accelerate, Fsdp2ReadsItAsABooleanAndIgnoresTheStrategy) {
  const Imported kept = fsdp("  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n");
  EXPECT_EQ(kept.job.strategy.sharding, Strategy::ShardGradOp);
  EXPECT_EQ(kept.job.strategy.reshard_after_forward, (ReshardAfterForward{.reshard = false}));
  EXPECT_EQ(kept.job.strategy.engine, Engine::Fsdp2);
  const Imported ignored = fsdp("  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n");
  EXPECT_EQ(ignored.job.strategy.sharding, Strategy::FullShard);
  EXPECT_EQ(fact(ignored, "user_meant"), FactValue("SHARD_GRAD_OP"));
  EXPECT_THAT(warnings_about(ignored, "fsdp_sharding_strategy"), HasSubstr("FULL_SHARD results"));
  EXPECT_THAT(fsdp_complaint("  fsdp_version: 2\n  fsdp_reshard_after_forward: FULL_SHARD\n"),
              HasSubstr("expected true (FULL_SHARD) or false (SHARD_GRAD_OP)"));
  EXPECT_THAT(fsdp_complaint("  fsdp_version: 3\n"), HasSubstr("expected 1 or 2, found '3'"));
}

TEST(Accelerate, HybridShardsInTheNode) {
  const Imported imported = import(
      "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 4\n"
      "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n");
  EXPECT_EQ(imported.job.cluster.nodes, 4);
  EXPECT_EQ(imported.job.strategy.shard_group, 4);
  EXPECT_EQ(fact(imported, "replica_groups"), FactValue(std::int64_t{4}));
  EXPECT_THAT(
      warnings_about(fsdp("  fsdp_sharding_strategy: HYBRID_SHARD\n"), "fsdp_sharding_strategy"),
      HasSubstr("on one node replicates nothing"));
}

TEST(Accelerate, ParallelismConfigMakesFsdp2Hybrid) {
  const std::string mesh =
      "parallelism_config: {parallelism_config_dp_replicate_size: 2, "
      "parallelism_config_dp_shard_size: 4}";
  const Imported imported = import(fsdp_file("  fsdp_version: 2\n", mesh));
  EXPECT_EQ(imported.job.strategy.sharding, Strategy::HybridShard);
  EXPECT_EQ(imported.job.strategy.shard_group, 4);
  EXPECT_THAT(complaint(fsdp_file("  fsdp_version: 2\n",
                                  "parallelism_config: {parallelism_config_tp_size: 2}")),
              HasSubstr("parallelism_config_tp_size: 2 is not supported yet"));
  EXPECT_THAT(complaint(fsdp_file("  fsdp_version: 2\n",
                                  "parallelism_config: {parallelism_config_dp_shard_size: 3}")),
              HasSubstr("1 x dp_shard_size 3 is not the world of 8"));
}

TEST(Accelerate, WrapPolicies) {
  const Imported classes =
      fsdp(std::string(kWrapped) + "  fsdp_transformer_layer_cls_to_wrap: T5Block, BertLayer\n");
  EXPECT_EQ(classes.job.strategy.wrap.layer_classes,
            (std::vector<std::string>{"T5Block", "BertLayer"}));
  EXPECT_THAT(warnings_about(classes, "fsdp_transformer_layer_cls_to_wrap"),
              HasSubstr("keeps the space beside 'BertLayer'"));
  const Imported size = fsdp(
      "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: "
      "2000\n  fsdp_transformer_layer_cls_to_wrap: T5Block\n");
  EXPECT_EQ(size.job.strategy.wrap.kind, WrapPolicy::Kind::Size);
  EXPECT_EQ(size.job.strategy.wrap.min_params, 2000);
  EXPECT_THAT(warnings_about(size, "fsdp_transformer_layer_cls_to_wrap"), HasSubstr("is ignored"));
  EXPECT_EQ(fsdp("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n").job.strategy.wrap.min_params,
            100'000'000);
  const Imported none = fsdp("  fsdp_auto_wrap_policy: NO_WRAP\n");
  EXPECT_EQ(none.job.strategy.wrap.kind, WrapPolicy::Kind::None);
  EXPECT_THAT(warnings_about(none, "fsdp_auto_wrap_policy"),
              HasSubstr("one unit for the whole model"));
  EXPECT_THAT(fsdp_complaint("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
                             "  fsdp_min_num_params: 1e8\n"),
              HasSubstr("accelerate takes digits only, found '1e8'; write 100000000"));
  EXPECT_EQ(fact(fsdp(kWrapped), "wrap"),
            FactValue("the classes of the model's _no_split_modules"));
}

TEST(Accelerate, PrefetchIsOffUnlessTheKeySaysSo) {
  EXPECT_EQ(fact(fsdp(kWrapped), "backward_prefetch"), FactValue("NONE (key absent)"));
  EXPECT_EQ(fsdp("  fsdp_backward_prefetch: BACKWARD_POST\n").job.strategy.backward_prefetch,
            BackwardPrefetch::Post);
  EXPECT_EQ(fsdp("  fsdp_backward_prefetch: 1\n").job.strategy.backward_prefetch,
            BackwardPrefetch::Pre);
  EXPECT_EQ(fsdp("  fsdp_backward_prefetch: NO_PREFETCH\n").job.strategy.backward_prefetch,
            BackwardPrefetch::None);
  const Imported old = fsdp("  fsdp_backward_prefetch_policy: BACKWARD_PRE\n");
  EXPECT_EQ(old.job.strategy.backward_prefetch, BackwardPrefetch::None);
  EXPECT_THAT(warnings_about(old, "fsdp_config.fsdp_backward_prefetch_policy"),
              HasSubstr("is ignored: accelerate 1.15.0 does not read it; did you mean "
                        "'fsdp_backward_prefetch'?; prefetch is off (NONE)"));
}

TEST(Accelerate, Fsdp2IgnoresWhatItLacks) {
  const Imported imported = fsdp(
      "  fsdp_version: 2\n  fsdp_backward_prefetch: BACKWARD_PRE\n"
      "  fsdp_forward_prefetch: true\n  fsdp_use_orig_params: false\n"
      "  fsdp_sync_module_states: true\n");
  for (const char* key : {"fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params",
                          "fsdp_sync_module_states"})
    EXPECT_THAT(warnings_about(imported, key), HasSubstr("is ignored with fsdp_version 2")) << key;
  EXPECT_EQ(fact(imported, "backward_prefetch"), FactValue("implicit"));
}

TEST(Accelerate, LoadingNeedsTheBroadcast) {
  EXPECT_EQ(fact(fsdp(kWrapped), "load"),
            FactValue("rank 0 real weights, others meta, then broadcast"));
  EXPECT_THAT(fsdp_complaint("  fsdp_sync_module_states: false\n"),
              StartsWith("acc.yaml:5:28: fsdp_config.fsdp_sync_module_states: must be true while"));
  EXPECT_THAT(
      warnings_about(fsdp("  fsdp_sync_module_states: 'false'\n"), "fsdp_sync_module_states"),
      HasSubstr("is set to true"));
  const Imported every =
      fsdp("  fsdp_cpu_ram_efficient_loading: false\n  fsdp_sync_module_states: false\n");
  EXPECT_EQ(fact(every, "load"), FactValue("every rank loads all weights"));
}

TEST(Accelerate, StateDictTypes) {
  EXPECT_EQ(fact(fsdp(kWrapped), "checkpoint"), FactValue("FULL_STATE_DICT"));
  EXPECT_EQ(fact(fsdp("  fsdp_version: 2\n"), "checkpoint"), FactValue("SHARDED_STATE_DICT"));
  EXPECT_EQ(fact(fsdp("  fsdp_state_dict_type: 2\n"), "checkpoint"), FactValue("LOCAL_STATE_DICT"));
  EXPECT_THAT(fsdp_complaint("  fsdp_version: 2\n  fsdp_state_dict_type: LOCAL_STATE_DICT\n"),
              HasSubstr("LOCAL_STATE_DICT does not exist with fsdp_version 2"));
}

TEST(Accelerate, CheckpointingAndOffload) {
  const Imported imported = fsdp(
      "  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n"
      "  fsdp_activation_checkpointing_offload: true\n  fsdp_offload_params: 'yes'\n");
  EXPECT_EQ(imported.job.training.activation_checkpointing.kind,
            ActivationCheckpointing::Kind::Full);
  EXPECT_EQ(imported.job.strategy.cpu_offload, (CpuOffload{true, false, true}));
  EXPECT_EQ(fact(imported, "state_bytes_per_param_adamw.host"), FactValue(std::int64_t{16}));
  EXPECT_THAT(fsdp_complaint("  fsdp_activation_checkpointing_offload: true\n"),
              HasSubstr("needs fsdp_activation_checkpointing: true and fsdp_version: 2"));
  EXPECT_THAT(fsdp_complaint("  fsdp_offload_params: maybe\n"),
              HasSubstr("fsdp_config.fsdp_offload_params: expected true or false, found 'maybe'"));
  EXPECT_THAT(fsdp_complaint("  fsdp_offload_params: null\n"), HasSubstr("expected true or false"));
}

TEST(Accelerate, MixedPrecision) {
  const MixedPrecision v1 = *fsdp(kWrapped).job.strategy.mixed_precision;
  EXPECT_EQ(v1, (MixedPrecision{Dtype::BFloat16, Dtype::BFloat16, Dtype::BFloat16}));
  const MixedPrecision v2 = *fsdp("  fsdp_version: 2\n").job.strategy.mixed_precision;
  EXPECT_EQ(v2.buffer, Dtype::Float32);
  EXPECT_FALSE(import(fsdp_file(kWrapped, "mixed_precision: 'no'")).job.strategy.mixed_precision);
  EXPECT_EQ(import(fsdp_file(kWrapped, "fp16: true")).job.strategy.mixed_precision->param,
            Dtype::Float16);
  EXPECT_THAT(complaint(fsdp_file(kWrapped, "mixed_precision: no")),
              HasSubstr("mixed_precision: no without quotes is the boolean false in YAML 1.1"));
  EXPECT_THAT(complaint(fsdp_file(kWrapped, "mixed_precision: bf8")),
              HasSubstr("unknown mixed_precision 'bf8'"));
}

TEST(Accelerate, TheWorldIsWhatIsStarted) {
  const Imported uneven =
      import("distributed_type: MULTI_GPU\nnum_processes: 10\nnum_machines: 4\n");
  EXPECT_EQ(uneven.job.world_size(), 8);
  EXPECT_THAT(warnings_about(uneven, "num_processes"), HasSubstr("8 in all"));
  EXPECT_THAT(complaint("distributed_type: FSDP\n"), HasSubstr("num_processes is missing"));
  EXPECT_EQ(import("distributed_type: FSDP\n", {.hardware = import_hardware(), .gpus = 16})
                .job.world_size(),
            16);
}

TEST(Accelerate, OtherLaunchesAreRefusedByName) {
  EXPECT_THAT(complaint("distributed_type: MEGATRON_LM\nnum_processes: 8\n"),
              StartsWith("acc.yaml:1:19: distributed_type: MEGATRON_LM is not supported yet"));
  EXPECT_THAT(complaint("distributed_type: XLA\n"), HasSubstr("XLA (TPU) is not supported yet"));
  EXPECT_THAT(complaint("distributed_type: FDSP\n"), HasSubstr("did you mean 'FSDP'?"));
  EXPECT_THAT(complaint("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\n"),
              HasSubstr("AMAZON_SAGEMAKER is not supported yet"));
  EXPECT_THAT(complaint("num_processes: 8\n"), HasSubstr("distributed_type is missing"));
  EXPECT_THAT(complaint("distributed_type: FSDP\nnum_proceses: 8\n"),
              HasSubstr("num_processes is missing"));
  EXPECT_THAT(complaint("distributed_type: FSDP\nnum_processes: 8\nmixed_precison: bf16\n"),
              HasSubstr("unknown field 'mixed_precison'; did you mean 'mixed_precision'?"));
}

TEST(Accelerate, SectionsOfOtherLaunchesAreIgnored) {
  const Imported imported = import(
      "distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: fp16\n"
      "fsdp_config: {fsdp_version: 2}\ndeepspeed_config: {zero_stage: 3}\n");
  EXPECT_EQ(imported.job.strategy.sharding, Strategy::Ddp);
  EXPECT_EQ(imported.job.strategy.engine, Engine::Ddp);
  EXPECT_THAT(warnings_about(imported, "fsdp_config"), HasSubstr("needs distributed_type: FSDP"));
  EXPECT_THAT(warnings_about(imported, "deepspeed_config"), HasSubstr("is ignored"));
}

TEST(Accelerate, DynamoMeansTheCompiledProfile) {
  const std::string dynamo = "dynamo_config: {dynamo_backend: INDUCTOR}";
  EXPECT_EQ(import(fsdp_file(kWrapped, dynamo)).job.strategy.profile, Profile::TorchCompile);
  EXPECT_EQ(fsdp(kWrapped).job.strategy.profile, Profile::TorchEager);
}

std::string deepspeed_file(const std::string& lines, const std::string& top = "") {
  return "distributed_type: DEEPSPEED\nnum_processes: 8\n" + top + "deepspeed_config:\n" + lines;
}

TEST(AccelerateDeepSpeed, ThePluginMakesTheConfig) {
  const Imported imported =
      import(deepspeed_file("  zero_stage: 3\n  offload_optimizer_device: cpu\n"
                            "  offload_optimizer_nvme_path: /x\n  gradient_accumulation_steps: 4\n"
                            "  gradient_clipping: 0.5\n  zero3_save_16bit_model: true\n",
                            "mixed_precision: bf16\n"));
  EXPECT_EQ(imported.job.strategy.sharding, Strategy::Zero3);
  EXPECT_EQ(imported.job.strategy.deepspeed->offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_TRUE(imported.job.strategy.deepspeed->gather_16bit_weights_on_model_save);
  EXPECT_EQ(imported.job.training.gradient_accumulation.steps, 4);
  EXPECT_EQ(imported.job.training.clip_grad_norm, 0.5);
  EXPECT_EQ(imported.job.strategy.mixed_precision->param, Dtype::BFloat16);
  EXPECT_EQ(fact(imported, "zero3_init"), FactValue(true));
  EXPECT_THAT(warnings_about(imported, "deepspeed_config.offload_optimizer_nvme_path"),
              HasSubstr("the launcher does not pass it on"));
}

TEST(AccelerateDeepSpeed, StageTwoIsTheDefault) {
  const Imported imported = import(deepspeed_file("  zero3_init_flag: true\n"));
  EXPECT_EQ(imported.job.strategy.sharding, Strategy::Zero2);
  EXPECT_THAT(warnings_about(imported, "deepspeed_config.zero3_init_flag"),
              HasSubstr("is set to false"));
}

TEST(AccelerateDeepSpeed, AFileOfItsOwnExcludesTheOtherKeys) {
  testing::ScratchFolder folder;
  const std::string path =
      folder.file("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
                                  "zero_optimization": {"stage": 3}})");
  const std::string file = "  deepspeed_config_file: " + path + "\n";
  EXPECT_EQ(import(deepspeed_file(file)).job.training.micro_batch, 2);
  EXPECT_THAT(complaint(deepspeed_file(file + "  zero_stage: 3\n")),
              HasSubstr("deepspeed_config.zero_stage: accelerate refuses it beside"));
  EXPECT_THAT(complaint(deepspeed_file(file, "mixed_precision: bf16\n")),
              HasSubstr("mixed_precision: accelerate refuses it beside deepspeed_config_file"));
  EXPECT_THAT(complaint(deepspeed_file("  deepspeed_config_file: nowhere.json\n")),
              HasSubstr("nowhere.json: cannot be opened"));
}

TEST(Accelerate, HostileFilesEndInOneError) {
  std::string deep = "distributed_type: FSDP\nfsdp_config: ";
  for (int i = 0; i < 1000; ++i)
    deep += "{a: ";
  EXPECT_THAT(complaint(deep), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(complaint("a: &a [1]\nb: [*a, *a]\n"), HasSubstr("anchors"));
  EXPECT_THAT(complaint("distributed_type: FSDP\ndistributed_type: FSDP\n"), HasSubstr("twice"));
  EXPECT_THAT(complaint("distributed_type: FSDP\nnum_processes: 99999999999999999999\n"),
              HasSubstr("num_processes: expected an integer"));
  EXPECT_THAT(complaint("distributed_type: FSDP\nnum_processes: .nan\n"),
              HasSubstr("num_processes: expected an integer"));
  EXPECT_THAT(complaint("distributed_type: FSDP\nnum_processes: 8\nfsdp_config: [1]\n"),
              HasSubstr("fsdp_config: expected a mapping, found a list"));
  EXPECT_THAT(complaint("[]"), HasSubstr("expected a mapping"));
  EXPECT_THAT(fsdp_complaint("  sharding_strategy: 1\n  fsdp_sharding_strategy: 1\n"),
              HasSubstr("is there twice"));
}

}  // namespace
}  // namespace shardplan
