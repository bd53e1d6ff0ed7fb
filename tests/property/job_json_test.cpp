#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "plans/error.h"
#include "plans/job_reader.h"

namespace shardplan {
namespace {

template <typename Value>
Value any_of(std::initializer_list<Value> values) {
  return *rc::gen::elementOf(std::vector<Value>(values));
}

/// A finite number greater than 0 of any magnitude, with all its digits.
double any_positive() {
  return std::ldexp(1 + *rc::gen::inRange(0, 1 << 30) / 1e9, *rc::gen::inRange(-60, 60));
}

double any_rate() {
  return std::ldexp(1 + *rc::gen::inRange(0, 1 << 30) / 1e10, *rc::gen::inRange(0, 59));
}

double any_share() { return *rc::gen::inRange(0, 1 << 30) / 1073741824.0; }

/// In (0, 1].
double any_efficiency() { return 1 - any_share(); }

/// Not empty; ASCII, because JSON replaces what is no UTF-8.
std::string any_text() {
  return *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127)));
}

GpuSpec any_gpu() {
  GpuSpec gpu;
  gpu.key = "gpu";
  gpu.name = any_of<std::string>({"H100", "a \"quoted\" name", "1e9", "null", "true"});
  gpu.memory_bytes = *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 50);
  gpu.compute_capability = any_of({std::string(), std::string("9.0")});
  gpu.multiprocessors = any_of({0, 108});
  visit_rates(gpu, [](const char*, double& rate, double least) {
    rate = least > 0 ? any_rate() : any_of({0.0, any_rate()});
  });
  gpu.node_type = any_of<std::string>({"pcie", "cpu-host"});
  gpu.max_gpus_per_node = *rc::gen::inRange(1, 65'537);
  if (*rc::gen::arbitrary<bool>()) gpu.price_per_hour = any_positive();
  gpu.source = any_of<std::string>({"", "a datasheet: page 1"});
  return gpu;
}

WrapPolicy any_wrap() {
  using Kind = WrapPolicy::Kind;
  WrapPolicy wrap;
  wrap.kind = any_of({Kind::Transformer, Kind::Size, Kind::Modules, Kind::None});
  if (wrap.kind == Kind::Transformer && *rc::gen::arbitrary<bool>()) wrap.layer_classes = {"Block"};
  if (wrap.kind == Kind::Size)
    wrap.min_params = *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 53);
  if (wrap.kind == Kind::Modules) wrap.names = {"lm_head", "7"};
  return wrap;
}

struct AnyOption {
  void operator()(std::string_view, std::optional<bool>& value, int) {
    if (*rc::gen::arbitrary<bool>()) value = *rc::gen::arbitrary<bool>();
  }
  void operator()(std::string_view, bool& value, int) { value = *rc::gen::arbitrary<bool>(); }
  void operator()(std::string_view, std::int64_t& value, int least) {
    value = *rc::gen::inRange<std::int64_t>(least, std::numeric_limits<std::int64_t>::max());
  }
  void operator()(std::string_view, double& value, int) { value = any_share(); }
  void operator()(std::string_view, std::string& value, int) {
    value = any_of<std::string>({"", "/local nvme"});
  }
  void operator()(std::string_view, OffloadDevice& value, int) {
    value = any_of({OffloadDevice::None, OffloadDevice::Cpu, OffloadDevice::Nvme});
  }
};

DeepSpeedOptions any_deepspeed() {
  DeepSpeedOptions options;
  visit_zero_options(options, AnyOption{});
  visit_offload_param(options.offload_param, AnyOption{});
  visit_offload_optimizer(options.offload_optimizer, AnyOption{});
  if (*rc::gen::arbitrary<bool>()) options.grad_accum_dtype = Dtype::BFloat16;
  return options;
}

void add_other_engines(StrategyJob& strategy) {
  const bool deepspeed = *rc::gen::arbitrary<bool>();
  strategy.sharding = deepspeed ? Strategy::Zero3 : strategy.sharding;
  strategy.engine = deepspeed ? Engine::DeepSpeed : any_of({Engine::Native, Engine::Fsdp1});
  if (deepspeed) strategy.deepspeed = any_deepspeed();
  strategy.framework_version = any_of<std::string>({"", "torch 2.11"});
  strategy.use_orig_params = *rc::gen::arbitrary<bool>();
  strategy.expandable_segments = *rc::gen::arbitrary<bool>();
  strategy.cpu_offload = {*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(),
                          *rc::gen::arbitrary<bool>()};
}

StrategyJob any_strategy() {
  StrategyJob strategy;
  strategy.sharding = any_of({Strategy::FullShard, Strategy::ShardGradOp, Strategy::NoShard,
                              Strategy::HybridShard, Strategy::HybridShardZero2, Strategy::Ddp});
  add_other_engines(strategy);
  strategy.profile = any_of({Profile::CpuOneDnn, Profile::CpuReference, Profile::Cuda,
                             Profile::TorchEager, Profile::TorchCompile});
  strategy.wrap = any_wrap();
  if (*rc::gen::arbitrary<bool>()) strategy.layout = any_of({Layout::Flat, Layout::PerParameter});
  if (*rc::gen::arbitrary<bool>()) strategy.shard_group = *rc::gen::inRange(1, 1025);
  const auto dtype = [] { return any_of({Dtype::Float32, Dtype::BFloat16, Dtype::Float16}); };
  if (*rc::gen::arbitrary<bool>()) strategy.mixed_precision = {dtype(), dtype(), dtype()};
  if (*rc::gen::arbitrary<bool>())
    strategy.reshard_after_forward =
        any_of<ReshardAfterForward>({{false, 0}, {true, 0}, {true, *rc::gen::inRange(2, 1025)}});
  strategy.backward_prefetch =
      any_of({BackwardPrefetch::None, BackwardPrefetch::Pre, BackwardPrefetch::Post});
  strategy.forward_prefetch = *rc::gen::inRange(0, 1025);
  strategy.limit_all_gathers = *rc::gen::arbitrary<bool>();
  strategy.ddp = {1e6 * (1 - any_share()), *rc::gen::arbitrary<bool>()};
  return strategy;
}

ActivationCheckpointing any_checkpointing() {
  using Kind = ActivationCheckpointing::Kind;
  ActivationCheckpointing checkpointing{
      any_of({Kind::None, Kind::Full, Kind::Selective, Kind::Every}), {}, {}, {}};
  if (checkpointing.kind == Kind::Selective) {
    if (*rc::gen::arbitrary<bool>()) checkpointing.modules = {"mlp", "self_attn"};
    checkpointing.operators = {OperatorKind::RmsNorm, OperatorKind::SwiGlu};
    if (*rc::gen::arbitrary<bool>()) checkpointing.every_second = {OperatorKind::Linear};
  }
  if (checkpointing.kind == Kind::Every) checkpointing.every = *rc::gen::inRange(1, 100);
  return checkpointing;
}

TrainingJob any_training() {
  using Optimizer = OptimizerJob::Name;
  using Schedule = ScheduleJob::Name;
  TrainingJob training;
  training.micro_batch = *rc::gen::inRange<std::int64_t>(1, 1 << 14);
  training.sequence_length = *rc::gen::inRange<std::int64_t>(1, 1 << 14);
  training.optimizer = {
      any_of({Optimizer::AdamW, Optimizer::Adam, Optimizer::Sgd}),
      any_positive(),
      any_share(),
      any_share(),
      any_positive(),
      any_positive(),
      any_share(),
      any_of({OptimizerJob::Decay::All, OptimizerJob::Decay::Matrices}),
      any_of({Dtype::Float32, Dtype::BFloat16}),
      any_of({OptimizerJob::Implementation::Foreach, OptimizerJob::Implementation::ForLoop})};
  training.gradient_accumulation = {
      *rc::gen::inRange(1, 1000),
      any_of({GradientAccumulation::Sync::Every, GradientAccumulation::Sync::Last})};
  training.activation_checkpointing = any_checkpointing();
  training.attention = any_of({AttentionKind::Sdpa, AttentionKind::Eager});
  training.attention_kernel =
      any_of({AttentionKernel::Flash2, AttentionKernel::Flash3, AttentionKernel::FlashUnmasked});
  training.matmul_dtype = any_of({MatmulDtype::None, MatmulDtype::Float8, MatmulDtype::NvFp4});
  training.loss_chunks = *rc::gen::inRange(1, 100);
  training.schedule = {any_of({Schedule::Constant, Schedule::Linear, Schedule::Cosine}),
                       *rc::gen::inRange(0, 10'000'001), any_share()};
  if (*rc::gen::arbitrary<bool>()) training.clip_grad_norm = any_positive();
  return training;
}

/// A job that a job file can describe, fully resolved.
Job any_job() {
  Job job;
  switch (*rc::gen::inRange(0, 3)) {
    case 0: job.model.preset = any_text(); break;
    case 1: job.model.hf_config = any_text(); break;
    default: job.model.graph = any_text(); break;
  }
  if (!job.model.hf_config.empty()) job.model.as_family = any_of<std::string>({"", "llama"});
  if (*rc::gen::arbitrary<bool>()) job.model.tie_word_embeddings = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) job.model.trainable = {"lm_head", "model.layers.*"};
  if (*rc::gen::arbitrary<bool>())
    job.model.lora = {*rc::gen::inRange(1, 100),
                      any_positive(),
                      {"q_proj"},
                      any_of({Dtype::Float32, Dtype::BFloat16})};
  job.cluster.gpu = any_gpu();
  job.cluster.gpus_per_node = *rc::gen::inRange(1, 4097);
  job.cluster.nodes = *rc::gen::inRange(1, 4097);
  job.cluster.network = {.intra_node_link = *rc::gen::element(NodeLink::Direct, NodeLink::Pcie),
                         .intra_node_bytes_per_s = any_rate(),
                         .intra_node_efficiency = any_efficiency(),
                         .intra_node_latency_s = any_share(),
                         .full_mesh_gpus = *rc::gen::inRange(0, 100),
                         .nvls_efficiency = any_share(),
                         .inter_node_bytes_per_s = any_rate(),
                         .inter_node_efficiency = any_efficiency(),
                         .inter_node_latency_s = any_share()};
  if (*rc::gen::arbitrary<bool>()) job.cluster.price_per_gpu_hour = any_positive();
  job.strategy = any_strategy();
  job.training = any_training();
  job.run.weights = any_of<std::string>({"", "weights/", "odd \\ \t name"});
  job.run.tokens = any_of<std::string>({"", any_text()});
  job.run.token_dtype = any_of({Dtype::UInt16, Dtype::UInt32});
  job.run.labels = any_of<std::string>({"", "labels.bin"});
  job.run.data_order = any_of<std::string>({"", "order.json"});
  job.run.steps = *rc::gen::inRange(1, 10'000'001);
  job.run.seed = *rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 63);
  job.run.output = any_text();
  job.run.checkpoint_every = *rc::gen::inRange(0, 1000);
  return job;
}

RC_GTEST_PROP(JobJson, GivesBackEveryField, ()) {
  const Job job = any_job();
  RC_ASSERT(job_from_json(job_to_json(job), "job") == job);
}

RC_GTEST_PROP(JobJson, IsTheSameTextForEqualJobs, ()) {
  const Job job = any_job();
  const std::string text = job_to_json(job);
  RC_ASSERT(job_to_json(job_from_json(text, "job")) == text);
}

RC_GTEST_PROP(JobJson, CutAnywhereIsWrongInput, ()) {
  const std::string text = job_to_json(any_job());
  const auto length = *rc::gen::inRange<std::size_t>(0, text.size());
  RC_ASSERT_THROWS_AS(job_from_json(text.substr(0, length), "job"), InputError);
}

}  // namespace
}  // namespace shardplan
