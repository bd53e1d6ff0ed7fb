#include "plans/job_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/error.h"

namespace shardplan {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Hardware& hardware() {
  static const Hardware catalogue = Hardware::read(SHARDPLAN_SOURCE_DIR "/plans");
  return catalogue;
}

Job parse(std::string_view yaml, const std::vector<Setting>& settings = {}) {
  return parse_job(yaml, "job.yaml", hardware(), settings);
}

std::string complaint(std::string_view yaml, const std::vector<Setting>& settings = {}) {
  try {
    parse(yaml, settings);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// The complaint about `lines` after a model, which stands on the first line.
std::string complaint_after_model(const std::string& lines) {
  return complaint("model: {preset: gpt2}\n" + lines);
}

// The contract's job file with every default written out, but for what is not supported yet.
constexpr const char* kFullJob = R"(
model:
  preset: llama-3-8b
  hf_config: null
  graph: null
  as_family: null
  dtype: float32
  tie_word_embeddings: null
  trainable: null
  lora: null
cluster:
  gpu: h100-sxm-80
  gpus_per_node: 8
  nodes: 1
  network: {}
  price_per_gpu_hour: null
strategy:
  sharding: FULL_SHARD
  engine: null
  profile: null
  framework_version: null
  layout: null
  use_orig_params: true
  shard_group: null
  wrap: {policy: transformer}
  mixed_precision: null
  reshard_after_forward: null
  backward_prefetch: BACKWARD_PRE
  forward_prefetch: 0
  limit_all_gathers: true
  cpu_offload: {params: false, optimizer: false, activations: false}
  ddp: {bucket_cap_mb: 25, gradient_as_bucket_view: false}
  deepspeed: {}
  allocator: {expandable_segments: false}
training:
  micro_batch: 1
  sequence_length: 4096
  gradient_accumulation: {steps: 1, sync: every}
  activation_checkpointing: none
  loss: {chunks: 1}
  optimizer: {name: adamw, lr: 3.0e-4, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, momentum: 0.0, decay: all, state_dtype: float32, implementation: foreach}
  schedule: {name: constant, warmup_steps: 0, min_lr_ratio: 0.1}
  clip_grad_norm: null
  attention: sdpa
run:
  weights: null
  tokens: null
  token_dtype: uint16
  labels: null
  data_order: null
  steps: 20
  seed: 0
  output: out/
  checkpoint_every: 0
)";

TEST(JobFile, EveryFieldOfTheContractMayBeWrittenOut) {
  EXPECT_EQ(parse(kFullJob), parse("model: {preset: llama-3-8b}"));
}

TEST(JobFile, DefaultsAreTheContracts) {
  const Job job = parse("model: {preset: llama-3-8b}");
  EXPECT_EQ(job.cluster.gpu.key, "h100-sxm-80");
  EXPECT_EQ(job.world_size(), 8);
  EXPECT_EQ(job.strategy.sharding, Strategy::FullShard);
  EXPECT_EQ(job.strategy.engine, Engine::Native);
  EXPECT_EQ(job.strategy.profile, Profile::Cuda);
  EXPECT_EQ(job.training.sequence_length, 4096);
  EXPECT_EQ(job.training.optimizer.beta2, 0.95);
  EXPECT_EQ(job.cluster.network, hardware().network_of(job.cluster.gpu));
}

TEST(JobFile, ReadsWhatIsNotTheDefault) {
  const Job job = parse(R"(
model: {hf_config: some/config.json, tie_word_embeddings: true}
cluster: {gpu: a100-sxm-40, nodes: 2, network: {inter_node_latency_s: 1e-5}, price_per_gpu_hour: 2}
strategy:
  sharding: DDP
  wrap: {policy: modules, names: [lm_head]}
  backward_prefetch: null
  forward_prefetch: true
  ddp: {bucket_cap_mb: 1.5}
training: {optimizer: {name: sgd, lr: 0.1, momentum: 0.9}, schedule: {name: linear}, clip_grad_norm: 1}
run: {token_dtype: uint32, seed: 7}
)");
  EXPECT_EQ(job.model.hf_config, "some/config.json");
  EXPECT_EQ(job.model.tie_word_embeddings, true);
  EXPECT_EQ(job.world_size(), 16);
  EXPECT_EQ(job.cluster.network.inter_node_latency_s, 1e-5);
  EXPECT_EQ(job.cluster.network.intra_node_bytes_per_s, 300e9);
  EXPECT_EQ(job.cluster.price_per_gpu_hour, 2.0);
  EXPECT_EQ(job.strategy.sharding, Strategy::Ddp);
  EXPECT_EQ(job.strategy.wrap.names, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(job.strategy.backward_prefetch, BackwardPrefetch::None);
  EXPECT_EQ(job.strategy.forward_prefetch, 1);
  EXPECT_EQ(job.strategy.ddp.bucket_cap_mb, 1.5);
  EXPECT_EQ(job.training.optimizer.name, OptimizerJob::Name::Sgd);
  EXPECT_EQ(job.training.schedule.name, ScheduleJob::Name::Linear);
  EXPECT_EQ(job.training.clip_grad_norm, 1.0);
  EXPECT_EQ(job.run.token_dtype, Dtype::UInt32);
  EXPECT_EQ(job.run.seed, 7u);
}

TEST(JobFile, PresetsAnswerToTheirHubId) {
  EXPECT_EQ(parse("model: {preset: meta-llama/Meta-Llama-3-8B}").model.preset, "llama-3-8b");
  EXPECT_THAT(complaint("model:\n  preset: gpt9\n"),
              AllOf(StartsWith("job.yaml:2:11: unknown model preset 'gpt9'; did you mean 'gpt2'? "
                               "known: llama-3-8b, llama-3-70b, "),
                    HasSubstr("qwen3-8b, gpt2, gpt2-xl, llama-20m, llama-tiny")));
}

TEST(JobFile, CpuRanksRunOnOneDnn) {
  const Job job = parse("model: {preset: gpt2}\ncluster: {gpu: cpu}");
  EXPECT_EQ(job.strategy.profile, Profile::CpuOneDnn);
}

TEST(JobFile, AnAutomaticClusterIsOneCpuRank) {
  const Job job = parse("model: {preset: gpt2}\ncluster: auto");
  EXPECT_EQ(job.cluster.gpu.key, "cpu");
  EXPECT_EQ(job.world_size(), 1);
}

TEST(JobFile, AGpuMayBeDefinedInPlace) {
  const Job job = parse(R"(
model: {preset: gpt2}
cluster:
  gpu: {name: Mine, memory_bytes: 1e10, memory_bandwidth_bytes_per_s: 1e12, matmul_flops_fp32: 1e13,
        pcie_bytes_per_s: 3e10}
)");
  EXPECT_EQ(job.cluster.gpu.name, "Mine");
  EXPECT_EQ(job.cluster.gpu.memory_bytes, 10'000'000'000);
  EXPECT_GT(job.cluster.network.intra_node_bytes_per_s, 0);
}

TEST(JobFile, NeedsExactlyOneModel) {
  EXPECT_THAT(complaint(""), StartsWith("job.yaml: model: expected exactly one of"));
  EXPECT_THAT(complaint("model: {dtype: float32}"), StartsWith("job.yaml:1:8: model: expected"));
  EXPECT_THAT(complaint("model: {preset: gpt2, hf_config: x}"), HasSubstr("exactly one of"));
}

TEST(WrongJob, UnknownKeysNameTheNearest) {
  EXPECT_THAT(complaint_after_model("strategy:\n  shardng: DDP\n"),
              StartsWith("job.yaml:3:3: unknown field of strategy 'shardng'; did you mean "
                         "'sharding'?"));
  EXPECT_THAT(complaint_after_model("trainig: {}\n"), HasSubstr("did you mean 'training'?"));
  EXPECT_THAT(complaint_after_model("strategy: {wrap: {policy: none, names: [a]}}\n"),
              HasSubstr("unknown field of strategy.wrap 'names'"));
}

TEST(WrongJob, WrongTypesSayWhatWasExpected) {
  EXPECT_EQ(complaint_after_model("training: {micro_batch: many}\n"),
            "job.yaml:2:25: training.micro_batch: expected an integer from 1 to 268435456, found "
            "'many'");
  EXPECT_THAT(complaint_after_model("training: [1]\n"),
              StartsWith("job.yaml:2:11: training: expected a mapping, found a list"));
  EXPECT_THAT(complaint("- 1\n"), StartsWith("job.yaml:1:1: the document: expected a mapping"));
  EXPECT_THAT(complaint_after_model("strategy: {limit_all_gathers: yes}\n"),
              HasSubstr("expected true or false, found 'yes'"));
}

TEST(WrongJob, ImpossibleNumbersAreRefused) {
  for (const char* lines : {"cluster: {gpus_per_node: 0}",
                            "cluster: {nodes: -1}",
                            "cluster: {nodes: 99999999999999}",
                            "cluster: {nodes: 10000000, gpus_per_node: 60000}",
                            "cluster: {gpus_per_node: 1.5}",
                            "cluster: {price_per_gpu_hour: -1}",
                            "cluster: {network: {inter_node_bytes_per_s: 0}}",
                            "training: {micro_batch: 0}",
                            "training: {sequence_length: -5}",
                            "training: {micro_batch: 100000, sequence_length: 100000}",
                            "training: {optimizer: {lr: .nan}}",
                            "training: {optimizer: {lr: -1}}",
                            "training: {optimizer: {betas: [0.9, 1]}}",
                            "training: {optimizer: {betas: [0.9]}}",
                            "training: {clip_grad_norm: 0}",
                            "training: {schedule: {min_lr_ratio: 2}}",
                            "run: {steps: 0}",
                            "run: {seed: -1}",
                            "strategy: {ddp: {bucket_cap_mb: 0}}",
                            "cluster: {gpu: {memory_bytes: 0}}"})
    EXPECT_THAT(complaint_after_model(std::string(lines) + "\n"), StartsWith("job.yaml:2:"))
        << lines;
}

TEST(WrongJob, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(complaint_after_model("strategy: {sharding: full_shard}\n"),
              HasSubstr("did you mean 'FULL_SHARD'? known: FULL_SHARD, SHARD_GRAD_OP"));
  EXPECT_THAT(complaint_after_model("cluster: {gpu: h100}\n"),
              StartsWith("job.yaml:2:16: 'h100' could be any GPU of: h100-sxm-80"));
  EXPECT_THAT(complaint_after_model("training: {optimizer: {name: adamx}}\n"),
              HasSubstr("known: adamw, adam, sgd"));
}

TEST(UnsupportedJob, EveryFieldWithoutImplementationSaysSo) {
  for (const char* model : {"{preset: gpt2, lora: {targets: [c_attn], base_dtype: nf4}}"})
    EXPECT_THAT(complaint(std::string("model: ") + model),
                HasSubstr("is not supported yet; supported: "))
        << model;
}

TEST(JobFile, ReadsWhatOtherEnginesLookAt) {
  const Job job = parse(R"(
model: {preset: gpt2, dtype: bfloat16}
strategy:
  sharding: ZERO_3
  engine: deepspeed
  framework_version: deepspeed 0.19.8
  use_orig_params: false
  mixed_precision: {param: float16}
  cpu_offload: {params: true, activations: true}
  deepspeed:
    overlap_comm: false
    reduce_bucket_size: 2.0e+8
    stage3_prefetch_bucket_size: 0
    offload_optimizer: {device: nvme, nvme_path: /local, ratio: 0.5}
    grad_accum_dtype: float32
  allocator: {expandable_segments: true}
training:
  attention: eager
  optimizer: {state_dtype: bfloat16, implementation: fused}
run: {checkpoint_every: 10}
)");
  const StrategyJob& strategy = job.strategy;
  EXPECT_EQ(job.model.dtype, Dtype::BFloat16);
  EXPECT_EQ(strategy.engine, Engine::DeepSpeed);  // what ZERO_* means when no engine is named
  EXPECT_EQ(strategy.profile, Profile::TorchEager);
  EXPECT_EQ(strategy.framework_version, "deepspeed 0.19.8");
  EXPECT_FALSE(strategy.use_orig_params);
  EXPECT_EQ(strategy.mixed_precision->reduce, Dtype::Float16);
  EXPECT_EQ(strategy.cpu_offload, (CpuOffload{true, false, true}));
  EXPECT_EQ(strategy.deepspeed->overlap_comm, false);
  EXPECT_EQ(strategy.deepspeed->reduce_bucket_size, 200'000'000);
  EXPECT_EQ(strategy.deepspeed->allgather_bucket_size, 500'000'000);
  EXPECT_EQ(strategy.deepspeed->prefetch_bucket_size, 0);
  EXPECT_EQ(strategy.deepspeed->offload_optimizer.device, OffloadDevice::Nvme);
  EXPECT_EQ(strategy.deepspeed->offload_optimizer.ratio, 0.5);
  EXPECT_EQ(strategy.deepspeed->offload_optimizer.buffer_count, 4);
  EXPECT_EQ(strategy.deepspeed->offload_param.buffer_count, 5);
  EXPECT_EQ(strategy.deepspeed->grad_accum_dtype, Dtype::Float32);
  EXPECT_TRUE(strategy.expandable_segments);
  EXPECT_EQ(job.training.attention, AttentionKind::Eager);
  EXPECT_EQ(job.training.optimizer.state_dtype, Dtype::BFloat16);
  EXPECT_EQ(job.run.checkpoint_every, 10);
  EXPECT_EQ(job_from_json(job_to_json(job), "json"), job);
}

TEST(JobFile, WrongDeepSpeedOptionsAreNamed) {
  EXPECT_THAT(complaint_after_model("strategy: {sharding: ZERO_2, deepspeed: {overlap_com: 1}}\n"),
              HasSubstr("unknown field of strategy.deepspeed 'overlap_com'; did you mean "
                        "'overlap_comm'?"));
  EXPECT_THAT(
      complaint_after_model("strategy: {sharding: ZERO_2, deepspeed: {reduce_bucket_size: 0}}\n"),
      HasSubstr("strategy.deepspeed.reduce_bucket_size: expected an integer from 1"));
  EXPECT_THAT(complaint_after_model("strategy: {deepspeed: {overlap_comm: true}}\n"),
              HasSubstr("strategy.deepspeed: the engine is native, not deepspeed"));
  EXPECT_THAT(complaint_after_model(
                  "strategy: {sharding: ZERO_3, deepspeed: {offload_param: {device: disk}}}\n"),
              HasSubstr("known: none, cpu, nvme"));
  EXPECT_THAT(complaint_after_model("strategy: {mixed_precision: {param: int32}}\n"),
              HasSubstr("strategy.mixed_precision.param: expected float32, bfloat16 or float16"));
}

TEST(JobFile, ReadsHowAStepIsCutAndWhatIsComputedAgain) {
  using Kind = ActivationCheckpointing::Kind;
  const Job job = parse(R"(
model: {preset: gpt2, trainable: [lm_head], lora: {rank: 8, alpha: 32, targets: [q_proj]}}
strategy:
  layout: per_parameter
  shard_group: 4
  mixed_precision: {param: bfloat16}
  reshard_after_forward: 2
training:
  gradient_accumulation: {steps: 4, sync: last}
  activation_checkpointing: {selective: [rms_norm, swiglu]}
  loss: {chunks: 8}
  optimizer: {decay: matrices}
)");
  EXPECT_EQ(job.model.lora->alpha, 32);
  EXPECT_EQ(job.strategy.layout, Layout::PerParameter);
  EXPECT_EQ(job.strategy.shard_group, 4);
  EXPECT_EQ(job.strategy.mixed_precision->reduce, Dtype::BFloat16);  // follows param
  EXPECT_EQ(job.strategy.mixed_precision->buffer, Dtype::Float32);
  EXPECT_EQ(job.strategy.reshard_after_forward->ranks, 2);
  EXPECT_EQ(job.training.gradient_accumulation.steps, 4);
  EXPECT_EQ(job.training.gradient_accumulation.sync, GradientAccumulation::Sync::Last);
  EXPECT_EQ(job.training.activation_checkpointing.kind, Kind::Selective);
  EXPECT_EQ(job.training.activation_checkpointing.operators,
            (std::vector{OperatorKind::RmsNorm, OperatorKind::SwiGlu}));
  EXPECT_EQ(job.training.loss_chunks, 8);
  EXPECT_EQ(job.training.optimizer.decay, OptimizerJob::Decay::Matrices);
  EXPECT_THAT(complaint_after_model("training: {activation_checkpointing: {selective: [rms]}}\n"),
              HasSubstr("unknown operator 'rms'"));
  EXPECT_THAT(complaint_after_model("training: {activation_checkpointing: {every: 0}}\n"),
              HasSubstr("training.activation_checkpointing.every"));
  EXPECT_THAT(complaint_after_model("strategy: {reshard_after_forward: 1}\n"),
              HasSubstr("strategy.reshard_after_forward"));
}

TEST(Overrides, ReplaceFieldsOfTheFile) {
  const Job job = parse("model: {preset: gpt2}", {"strategy.sharding=DDP", "cluster.gpu=A100 80GB",
                                                  "cluster.gpus_per_node=4"});
  EXPECT_EQ(job.strategy.sharding, Strategy::Ddp);
  EXPECT_EQ(job.cluster.gpu.key, "a100-sxm-80");
  EXPECT_EQ(job.world_size(), 4);
}

TEST(Overrides, MayReplaceTheModelsSource) {
  const Job job = parse("model: {preset: gpt2}", {"model.preset=null", "model.hf_config=x.json"});
  EXPECT_EQ(job.model.hf_config, "x.json");
}

TEST(Overrides, AreThePlaceOfTheirErrors) {
  EXPECT_EQ(complaint("model: {preset: gpt2}", {"training.micro_batch=x"}),
            "--set training.micro_batch=x: training.micro_batch: expected an integer from 1 to "
            "268435456, found 'x'");
  EXPECT_THAT(complaint("model: {preset: gpt2}", {"strategy.shading=DDP"}),
              StartsWith("--set strategy.shading=DDP: unknown field of strategy 'shading'"));
}

TEST(ResolvedJob, IsReadBackFromItsYaml) {
  Job job = parse(kFullJob);
  EXPECT_EQ(parse(job_to_yaml(job, hardware())), job);
  job.cluster.gpu.name = "a card of our own: \"x\"";  // no longer the catalogue's
  job.cluster.network.inter_node_latency_s = 0.5;
  job.strategy.wrap = {.kind = WrapPolicy::Kind::Modules, .layer_classes = {}, .names = {"a", "7"}};
  job.training.activation_checkpointing = {.kind = ActivationCheckpointing::Kind::Every,
                                           .every = 3};
  job.run.weights = "null";
  EXPECT_EQ(parse(job_to_yaml(job, hardware())), job);
}

TEST(ResolvedJob, NamesTheGpuOfTheCatalogueInYaml) {
  const std::string yaml = job_to_yaml(parse("model: {preset: gpt2}"), hardware());
  EXPECT_THAT(yaml, HasSubstr("  gpu: h100-sxm-80\n  gpus_per_node: 8\n"));
  EXPECT_THAT(yaml, HasSubstr("  network: {}\n"));
}

TEST(ResolvedJob, IsReadBackFromItsJson) {
  const Job job = parse(kFullJob);
  EXPECT_EQ(job_from_json(job_to_json(job), "plan.json"), job);
}

TEST(ResolvedJob, NeedsItsClusterInFull) {
  try {
    job_from_json(R"({"model": {"preset": "gpt2"}, "cluster": {"gpu": "l4"}})", "plan.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "plan.json: /cluster: cluster.gpu: expected a mapping");
  }
}

TEST(ResolvedJob, NeedsTheRatesOfItsLinks) {
  try {
    job_from_json(R"({"model": {"preset": "gpt2"}, "cluster": {"gpu": {"memory_bytes": 1,
                      "memory_bandwidth_bytes_per_s": 1, "matmul_flops_fp32": 1,
                      "pcie_bytes_per_s": 1}}})",
                  "plan.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "plan.json: /cluster: cluster.network: both rates are needed");
  }
}

TEST(JobFile, ThatIsMissingIsWrongInput) {
  EXPECT_THROW(read_job("/no/such/job.yaml", hardware(), {}), InputError);
}

TEST(JobFile, ExamplesAreValid) {
  for (const char* name :
       {"quickstart.yaml", "llama-3-8b-8xh100.yaml", "llama-3-70b-1024xh100.yaml"})
    EXPECT_NO_THROW(
        read_job(std::string(SHARDPLAN_SOURCE_DIR "/plans/jobs/") + name, hardware(), {}))
        << name;
}

}  // namespace
}  // namespace shardplan
