#include "planner/unsupported.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "plans/error.h"
#include "plans/field_places.h"

namespace shardplan {
namespace {

/// float16 can be asked for, and needs loss scaling, which is not planned.
void refuse_float16(const std::string& field, Dtype dtype) {
  if (dtype == Dtype::Float16) fail_unsupported(field, to_string(dtype), "float32, bfloat16");
}

void refuse_float16(const Job& job) {
  refuse_float16("model.dtype", job.model.dtype);
  if (job.model.lora) refuse_float16("model.lora.dtype", job.model.lora->dtype);
  const auto& precision = job.strategy.mixed_precision;
  if (!precision) return;
  refuse_float16("strategy.mixed_precision.param", precision->param);
  refuse_float16("strategy.mixed_precision.reduce", precision->reduce);
  refuse_float16("strategy.mixed_precision.buffer", precision->buffer);
}

/// What only PyTorch's engines do, and ours does not.
void refuse_for_native(const StrategyJob& strategy) {
  const Profile profile = strategy.profile.value_or(Profile::Cuda);
  if (profile != Profile::Cuda && !is_cpu(profile))
    fail_unsupported("strategy.profile", to_string(profile), "cpu-onednn, cpu-reference, cuda");
  if (!strategy.framework_version.empty())
    fail_unsupported("strategy.framework_version", strategy.framework_version, "null");
  if (!strategy.use_orig_params) fail_unsupported("strategy.use_orig_params", "false", "true");
  if (strategy.expandable_segments)
    fail_unsupported("strategy.allocator.expandable_segments", "true", "false");
  if (strategy.backward_prefetch_units != 1)
    fail_unsupported("strategy.backward_prefetch", "several units", "BACKWARD_PRE");
}

/// What an engine does.
std::vector<Strategy> shardings_of(Engine engine) {
  using enum Strategy;
  switch (engine) {
    case Engine::Fsdp2: return {FullShard, ShardGradOp, HybridShard, HybridShardZero2};
    case Engine::Fsdp1: return {FullShard, ShardGradOp, NoShard, HybridShard, HybridShardZero2};
    case Engine::Replicate: return {NoShard, Ddp};
    case Engine::Ddp: return {Ddp};
    case Engine::DeepSpeed: return {Ddp, Zero1, Zero2, Zero3};
    case Engine::Native: break;
  }
  return {FullShard, ShardGradOp, NoShard, HybridShard, HybridShardZero2, Ddp, Zero1, Zero2, Zero3};
}

void refuse_sharding_of_others(Engine engine, Strategy sharding) {
  std::vector<std::string_view> known;
  for (const Strategy one : shardings_of(engine))
    known.push_back(to_string(one));
  if (std::ranges::find(known, to_string(sharding)) == known.end())
    throw FieldError("strategy.sharding",
                     fmt::format("{} does not go with engine {}; expected {}", to_string(sharding),
                                 to_string(engine), fmt::join(known, ", ")));
}

void refuse_for_torch(const Job& job, Engine engine) {
  const StrategyJob& strategy = job.strategy;
  const Profile profile = strategy.profile.value_or(Profile::TorchEager);
  const auto with_engine = [&](std::string_view what) {
    return fmt::format("{} with engine {}", what, to_string(engine));
  };
  if (!is_torch(profile))
    fail_unsupported("strategy.profile", with_engine(to_string(profile)),
                     "torch-eager, torch-compile");
}

/// Options of DeepSpeed that change what is allocated or sent, and are not planned.
void refuse_zero_options(const DeepSpeedOptions& options) {
  const auto refuse = [](bool asked, const char* option, std::string_view value,
                         std::string_view supported) {
    if (asked) fail_unsupported(fmt::format("strategy.deepspeed.{}", option), value, supported);
  };
  for (const auto& [offload, name] : {std::pair(&options.offload_param, "offload_param"),
                                      std::pair(&options.offload_optimizer, "offload_optimizer")})
    refuse(offload->device == OffloadDevice::Nvme, name, "device nvme", "none, cpu");
  refuse(options.offload_optimizer.ratio < 1, "offload_optimizer.ratio", "a part", "1");
  refuse(options.offload_optimizer.super_offload, "offload_optimizer.super_offload", "true",
         "false");
  refuse(!options.use_multi_rank_bucket_allreduce, "use_multi_rank_bucket_allreduce", "false",
         "true");
  refuse(options.module_granularity_threshold > 0, "stage3_module_granularity_threshold",
         "a threshold", "0");
  refuse(options.use_all_reduce_for_fetch_params, "stage3_use_all_reduce_for_fetch_params", "true",
         "false");
  refuse(options.zero_hpz_partition_size > 1, "zero_hpz_partition_size", "a second group", "1");
  refuse(options.zero_quantized_weights, "zero_quantized_weights", "true", "false");
  refuse(options.zero_quantized_nontrainable_weights, "zero_quantized_nontrainable_weights", "true",
         "false");
  refuse(options.zero_quantized_gradients, "zero_quantized_gradients", "true", "false");
}

void refuse_for_deepspeed(const Job& job) {
  const DeepSpeedOptions options = job.strategy.deepspeed.value_or(DeepSpeedOptions{});
  refuse_zero_options(options);
  const auto& precision = job.strategy.mixed_precision;
  if (precision && precision->buffer != precision->param)
    fail_unsupported("strategy.mixed_precision.buffer",
                     fmt::format("{} beside parameters in {} (torch_autocast)",
                                 to_string(precision->buffer), to_string(precision->param)),
                     "that of param");
  const Dtype dtype = precision ? precision->param : job.model.dtype;
  if (keeps_flat_gradients(job.strategy) &&
      options.offload_optimizer.device != OffloadDevice::None &&
      options.grad_accum_dtype.value_or(dtype) != dtype)
    fail_unsupported("strategy.deepspeed.grad_accum_dtype",
                     "another dtype than the model's with offload_optimizer", "null, or stage 3");
  const GradientAccumulation& accumulation = job.training.gradient_accumulation;
  const GradientAccumulation::Sync usual = usual_sync(job.strategy);
  if (accumulation.steps > 1 && accumulation.sync != usual)
    throw FieldError(
        "training.gradient_accumulation.sync",
        fmt::format(
            "with {} DeepSpeed reduces at {}; expected {}", to_string(job.strategy.sharding),
            usual == GradientAccumulation::Sync::Every ? "every micro-step" : "the last one",
            to_string(usual)));
}

void refuse_for_engine(const Job& job) {
  const Engine engine = job.strategy.engine.value_or(Engine::Native);
  refuse_sharding_of_others(engine, job.strategy.sharding);
  if (engine == Engine::DeepSpeed) refuse_for_deepspeed(job);
  engine == Engine::Native ? refuse_for_native(job.strategy) : refuse_for_torch(job, engine);
}

}  // namespace

void fail_unsupported(const std::string& field, std::string_view value,
                      std::string_view supported) {
  throw FieldError(field, fmt::format("{} is not supported yet; supported: {}", value, supported));
}

void refuse_unplanned(const Job& job) {
  refuse_for_engine(job);
  refuse_float16(job);
  const bool native = job.strategy.engine.value_or(Engine::Native) == Engine::Native;
  if (job.strategy.shard_group && !is_hybrid(job.strategy.sharding))
    throw FieldError(
        "strategy.shard_group",
        fmt::format("{} does not shard in groups; HYBRID_SHARD and _HYBRID_SHARD_ZERO2 do",
                    to_string(job.strategy.sharding)));
  CpuOffload other = job.strategy.cpu_offload;
  if (native) other.optimizer = false;
  if (job.strategy.engine == Engine::Fsdp2) other.params = false;
  if (other != CpuOffload{})
    fail_unsupported("strategy.cpu_offload", "to move these parts to the host",
                     "optimizer with engine native, params with engine fsdp2; strategy.deepspeed "
                     "has its own");
  // Stored and optimised in it, not only computed in it.
  if (native && job.model.dtype != Dtype::Float32)
    fail_unsupported("model.dtype", to_string(job.model.dtype),
                     "float32, with strategy.mixed_precision for what is computed");
  if (job.training.optimizer.state_dtype != Dtype::Float32)
    fail_unsupported("training.optimizer.state_dtype",
                     to_string(job.training.optimizer.state_dtype), "float32");
  if (native && job.model.lora && job.model.lora->dtype != Dtype::Float32)
    fail_unsupported("model.lora.dtype", to_string(job.model.lora->dtype), "float32");
  if (native && job.training.attention != AttentionKind::Sdpa)
    fail_unsupported("training.attention", "eager", "sdpa");
}

}  // namespace shardplan
