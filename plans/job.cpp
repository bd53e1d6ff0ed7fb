#include "plans/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "plans/error.h"
#include "plans/extent.h"
#include "plans/names.h"

namespace shardplan {
namespace {

constexpr std::array kStrategyNames{
    EnumName{Strategy::FullShard, "FULL_SHARD"},
    EnumName{Strategy::ShardGradOp, "SHARD_GRAD_OP"},
    EnumName{Strategy::NoShard, "NO_SHARD"},
    EnumName{Strategy::HybridShard, "HYBRID_SHARD"},
    EnumName{Strategy::HybridShardZero2, "_HYBRID_SHARD_ZERO2"},
    EnumName{Strategy::Ddp, "DDP"},
    EnumName{Strategy::Zero1, "ZERO_1"},
    EnumName{Strategy::Zero2, "ZERO_2"},
    EnumName{Strategy::Zero3, "ZERO_3"},
};

constexpr std::array kEngineNames{
    EnumName{Engine::Native, "native"},       EnumName{Engine::Fsdp1, "fsdp1"},
    EnumName{Engine::Fsdp2, "fsdp2"},         EnumName{Engine::Ddp, "ddp"},
    EnumName{Engine::Replicate, "replicate"}, EnumName{Engine::DeepSpeed, "deepspeed"},
};

constexpr std::array kWrapNames{
    EnumName{WrapPolicy::Kind::Transformer, "transformer"},
    EnumName{WrapPolicy::Kind::Size, "size"},
    EnumName{WrapPolicy::Kind::Modules, "modules"},
    EnumName{WrapPolicy::Kind::None, "none"},
};

constexpr std::array kPrefetchNames{
    EnumName{BackwardPrefetch::None, "null"},
    EnumName{BackwardPrefetch::Pre, "BACKWARD_PRE"},
    EnumName{BackwardPrefetch::Post, "BACKWARD_POST"},
};

constexpr std::array kLayoutNames{
    EnumName{Layout::Flat, "flat"},
    EnumName{Layout::PerParameter, "per_parameter"},
};

constexpr std::array kSyncNames{
    EnumName{GradientAccumulation::Sync::Every, "every"},
    EnumName{GradientAccumulation::Sync::Last, "last"},
};

constexpr std::array kDecayNames{
    EnumName{OptimizerJob::Decay::All, "all"},
    EnumName{OptimizerJob::Decay::Matrices, "matrices"},
};

constexpr std::array kOptimizerNames{
    EnumName{OptimizerJob::Name::AdamW, "adamw"},
    EnumName{OptimizerJob::Name::Adam, "adam"},
    EnumName{OptimizerJob::Name::Sgd, "sgd"},
};

constexpr std::array kScheduleNames{
    EnumName{ScheduleJob::Name::Constant, "constant"},
    EnumName{ScheduleJob::Name::Linear, "linear"},
    EnumName{ScheduleJob::Name::Cosine, "cosine"},
};

constexpr std::array kImplementationNames{
    EnumName{OptimizerJob::Implementation::Foreach, "foreach"},
    EnumName{OptimizerJob::Implementation::Fused, "fused"},
    EnumName{OptimizerJob::Implementation::ForLoop, "for-loop"},
};

constexpr std::array kAttentionKernelNames{
    EnumName{AttentionKernel::Flash2, "flash2"},
    EnumName{AttentionKernel::Flash3, "flash3"},
    EnumName{AttentionKernel::FlashUnmasked, "flash-unmasked"},
};
constexpr std::array kMatmulDtypeNames{
    EnumName{MatmulDtype::None, "none"},
    EnumName{MatmulDtype::Float8, "float8"},
    EnumName{MatmulDtype::NvFp4, "nvfp4"},
};
constexpr std::array kAttentionNames{
    EnumName{AttentionKind::Sdpa, "sdpa"},
    EnumName{AttentionKind::Eager, "eager"},
};

}  // namespace

std::string_view to_string(Strategy strategy) { return name_of(kStrategyNames, strategy); }
Strategy strategy_from(std::string_view name) { return value_of(kStrategyNames, name, "strategy"); }

std::string_view to_string(Engine engine) { return name_of(kEngineNames, engine); }
Engine engine_from(std::string_view name) { return value_of(kEngineNames, name, "engine"); }

std::string_view to_string(WrapPolicy::Kind kind) { return name_of(kWrapNames, kind); }
WrapPolicy::Kind wrap_policy_from(std::string_view name) {
  return value_of(kWrapNames, name, "wrap policy");
}

Engine engine_for(Strategy sharding, Engine wanted) {
  if (wanted == Engine::Native) return wanted;
  if (is_zero(sharding)) return Engine::DeepSpeed;
  if (sharding == Strategy::Ddp)
    return wanted == Engine::Replicate || wanted == Engine::DeepSpeed ? wanted : Engine::Ddp;
  if (sharding == Strategy::NoShard) return wanted == Engine::Fsdp1 ? wanted : Engine::Replicate;
  return wanted == Engine::Fsdp1 ? wanted : Engine::Fsdp2;
}

std::string_view to_string(BackwardPrefetch prefetch) { return name_of(kPrefetchNames, prefetch); }
BackwardPrefetch backward_prefetch_from(std::string_view name) {
  return value_of(kPrefetchNames, name, "backward prefetch");
}

std::string_view to_string(Layout layout) { return name_of(kLayoutNames, layout); }
Layout layout_from(std::string_view name) { return value_of(kLayoutNames, name, "layout"); }

std::string_view to_string(GradientAccumulation::Sync sync) { return name_of(kSyncNames, sync); }
GradientAccumulation::Sync accumulation_sync_from(std::string_view name) {
  return value_of(kSyncNames, name, "gradient_accumulation.sync");
}

std::string_view to_string(OptimizerJob::Decay decay) { return name_of(kDecayNames, decay); }
OptimizerJob::Decay decay_from(std::string_view name) {
  return value_of(kDecayNames, name, "weight decay");
}

std::string_view to_string(OptimizerJob::Name name) { return name_of(kOptimizerNames, name); }
OptimizerJob::Name optimizer_from(std::string_view name) {
  return value_of(kOptimizerNames, name, "optimizer");
}

std::string_view to_string(ScheduleJob::Name name) { return name_of(kScheduleNames, name); }
ScheduleJob::Name schedule_from(std::string_view name) {
  return value_of(kScheduleNames, name, "schedule");
}

std::string_view to_string(OptimizerJob::Implementation implementation) {
  return name_of(kImplementationNames, implementation);
}
OptimizerJob::Implementation implementation_from(std::string_view name) {
  return value_of(kImplementationNames, name, "optimizer implementation");
}

std::string_view to_string(AttentionKind attention) { return name_of(kAttentionNames, attention); }
AttentionKind attention_from(std::string_view name) {
  return value_of(kAttentionNames, name, "attention");
}

std::string_view to_string(AttentionKernel kernel) {
  return name_of(kAttentionKernelNames, kernel);
}
AttentionKernel attention_kernel_from(std::string_view name) {
  return value_of(kAttentionKernelNames, name, "attention kernel");
}

std::int64_t tokens_per_step(const Job& job) {
  const TrainingJob& training = job.training;
  return (Extent(training.micro_batch) * training.sequence_length *
          training.gradient_accumulation.steps * job.world_size())
      .value();
}

bool is_zero(Strategy sharding) {
  return sharding == Strategy::Zero1 || sharding == Strategy::Zero2 || sharding == Strategy::Zero3;
}

bool keeps_flat_gradients(const StrategyJob& strategy) {
  return strategy.engine == Engine::DeepSpeed &&
         (strategy.sharding == Strategy::Zero1 || strategy.sharding == Strategy::Zero2);
}

GradientAccumulation::Sync usual_sync(const StrategyJob& strategy) {
  const bool until_last =
      strategy.engine == Engine::DeepSpeed &&
      (strategy.sharding == Strategy::Ddp || strategy.sharding == Strategy::Zero1);
  return until_last ? GradientAccumulation::Sync::Last : GradientAccumulation::Sync::Every;
}

std::string_view to_string(MatmulDtype dtype) { return name_of(kMatmulDtypeNames, dtype); }
MatmulDtype matmul_dtype_from(std::string_view name) {
  return value_of(kMatmulDtypeNames, name, "matmul dtype");
}

void set_sharding(Job& job, Strategy sharding) {
  StrategyJob& strategy = job.strategy;
  const bool was_usual = job.training.gradient_accumulation.sync == usual_sync(strategy);
  strategy.sharding = sharding;
  const Engine before = strategy.engine.value_or(Engine::Native);
  strategy.engine = engine_for(sharding, before);
  if (strategy.engine != before && strategy.engine == Engine::DeepSpeed) {
    strategy.deepspeed.emplace();
    strategy.profile = Profile::TorchEager;
    if (strategy.mixed_precision)
      strategy.mixed_precision->buffer = strategy.mixed_precision->param;
  }
  if (strategy.engine != Engine::DeepSpeed) strategy.deepspeed.reset();
  if (was_usual) job.training.gradient_accumulation.sync = usual_sync(strategy);
}

void set_world(Job& job, int gpus) {
  if (gpus < 1 || gpus > kLargestWorld)
    throw InputError(fmt::format("{} GPUs: expected 1 to {}", gpus, kLargestWorld));
  const int node = job.cluster.gpu.max_gpus_per_node;
  if (gpus > node && gpus % node != 0)
    throw InputError(
        fmt::format("{} GPUs do not divide into nodes of {} {}", gpus, node, job.cluster.gpu.name));
  job.cluster.gpus_per_node = gpus <= node ? gpus : node;
  job.cluster.nodes = gpus <= node ? 1 : gpus / node;
}

double learning_rate(const OptimizerJob& optimizer, const ScheduleJob& schedule, int step,
                     int steps) {
  if (step < schedule.warmup_steps) return optimizer.lr * (step + 1) / schedule.warmup_steps;
  // A run that is all warm-up has no steps after it.
  const int after = steps - schedule.warmup_steps;
  const double progress =
      after > 0 ? std::min(1.0, static_cast<double>(step - schedule.warmup_steps) / after) : 0.0;
  const double lowest = optimizer.lr * schedule.min_lr_ratio;
  switch (schedule.name) {
    case ScheduleJob::Name::Constant: return optimizer.lr;
    case ScheduleJob::Name::Linear: return optimizer.lr + (lowest - optimizer.lr) * progress;
    case ScheduleJob::Name::Cosine:
      return lowest + (optimizer.lr - lowest) / 2 * (1 + std::cos(std::numbers::pi * progress));
  }
  return optimizer.lr;
}

}  // namespace shardplan
