#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "plans/deepspeed_options.h"
#include "plans/field_places.h"
#include "plans/hardware.h"
#include "plans/operators.h"
#include "plans/units.h"

namespace shardplan {

enum class Strategy {
  FullShard,
  ShardGradOp,
  NoShard,
  HybridShard,
  HybridShardZero2,
  Ddp,
  Zero1,
  Zero2,
  Zero3,
};
/// PyTorch's and DeepSpeed's names: "FULL_SHARD", "_HYBRID_SHARD_ZERO2", "ZERO_1", ...
std::string_view to_string(Strategy strategy);
/// Throws InputError with the nearest known name.
Strategy strategy_from(std::string_view name);

enum class Engine { Native, Fsdp1, Fsdp2, Ddp, Replicate, DeepSpeed };
std::string_view to_string(Engine engine);
Engine engine_from(std::string_view name);

/// Of PyTorch's engines the one that does this sharding, `wanted` where it does; ours does all but
/// ZERO_*.
Engine engine_for(Strategy sharding, Engine wanted);

/// Low-rank adapters beside frozen linear layers, as PEFT adds them.
struct LoraJob {
  int rank = 16;
  double alpha = 8;                  // the adapter's output is scaled by alpha / rank
  std::vector<std::string> targets;  // last components of module paths, e.g. "q_proj"
  Dtype dtype = Dtype::Float32;      // of the adapters

  bool operator==(const LoraJob&) const = default;
};

struct ModelJob {
  std::string preset;     // exactly one of preset, hf_config, graph is not empty
  std::string hf_config;  // path of a config.json or of the folder that holds it
  std::string graph;      // path of a graph YAML
  std::string as_family;  // reads hf_config as of this model_type; empty: as it says
  Dtype dtype = Dtype::Float32;
  std::optional<bool> tie_word_embeddings;
  std::optional<std::vector<std::string>> trainable;  // name patterns; null: all parameters
  std::optional<LoraJob> lora;

  bool operator==(const ModelJob&) const = default;
};

struct ClusterJob {
  GpuSpec gpu;  // resolved from the catalogue, or defined in place
  int gpus_per_node = 8;
  int nodes = 1;
  NetworkSpec network;                       // resolved
  std::optional<double> price_per_gpu_hour;  // USD

  int world_size() const { return gpus_per_node * nodes; }
  bool operator==(const ClusterJob&) const = default;
};

struct WrapPolicy {
  enum class Kind { Transformer, Size, Modules, None } kind = Kind::Transformer;
  std::vector<std::string> layer_classes;  // Transformer; empty: the family's block
  std::int64_t min_params = 100'000'000;   // Size
  std::vector<std::string> names;          // Modules

  bool operator==(const WrapPolicy&) const = default;
};

std::string_view to_string(WrapPolicy::Kind kind);
WrapPolicy::Kind wrap_policy_from(std::string_view name);

enum class BackwardPrefetch { None, Pre, Post };
std::string_view to_string(BackwardPrefetch prefetch);
BackwardPrefetch backward_prefetch_from(std::string_view name);

struct DdpOptions {
  double bucket_cap_mb = 25;  // MiB, as PyTorch means it
  bool gradient_as_bucket_view = false;

  bool operator==(const DdpOptions&) const = default;
};

/// How a unit's parameters are cut into shards: FSDP1's flat parameter, or FSDP2's rows of every
/// parameter.
enum class Layout { Flat, PerParameter };
std::string_view to_string(Layout layout);
Layout layout_from(std::string_view name);

/// Dtypes of unsharded parameters and of the compute on them, of gradient reductions, and of the
/// model's buffers.
struct MixedPrecision {
  Dtype param = Dtype::Float32;
  Dtype reduce = Dtype::Float32;
  Dtype buffer = Dtype::Float32;

  bool operator==(const MixedPrecision&) const = default;
};

/// What becomes of a unit's whole parameters between forward and backward.
struct ReshardAfterForward {
  bool reshard = true;
  int ranks = 0;  // ranks that then hold one copy together; 0: the shard group

  bool operator==(const ReshardAfterForward&) const = default;
};

/// What the PyTorch engines keep in host memory instead of the device's.
struct CpuOffload {
  bool params = false;  // shards of parameters, with gradients and the optimizer's step (FSDP)
  bool optimizer = false;
  bool activations = false;  // what checkpointing keeps of every block

  bool operator==(const CpuOffload&) const = default;
};

struct StrategyJob {
  Strategy sharding = Strategy::FullShard;
  std::optional<Engine> engine;    // null: the command's default
  std::optional<Profile> profile;  // null: the device's own
  std::string framework_version;   // "torch 2.11"; empty: the newest known
  std::optional<Layout> layout;    // null: flat
  bool use_orig_params = true;     // fsdp1
  std::optional<int> shard_group;  // ranks; HYBRID_* only; null: gpus_per_node
  WrapPolicy wrap;
  std::optional<MixedPrecision> mixed_precision;
  std::optional<ReshardAfterForward> reshard_after_forward;  // null: as `sharding` says
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;
  int backward_prefetch_units = 1;  // fsdp2, by set_modules_to_backward_prefetch
  int forward_prefetch = 0;
  bool limit_all_gathers = true;
  CpuOffload cpu_offload;
  DdpOptions ddp;
  std::optional<DeepSpeedOptions> deepspeed;  // null unless the engine is deepspeed
  bool expandable_segments = false;           // of PyTorch's caching allocator

  bool operator==(const StrategyJob&) const = default;
};

struct OptimizerJob {
  enum class Name { AdamW, Adam, Sgd } name = Name::AdamW;
  double lr = 3.0e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.1;
  double momentum = 0.0;
  enum class Decay { All, Matrices } decay = Decay::All;  // which parameters are decayed
  Dtype state_dtype = Dtype::Float32;
  /// How PyTorch's step goes over the parameters; our own is always fused.
  enum class Implementation { Foreach, Fused, ForLoop } implementation = Implementation::Foreach;

  bool operator==(const OptimizerJob&) const = default;
};
std::string_view to_string(OptimizerJob::Name name);
OptimizerJob::Name optimizer_from(std::string_view name);
std::string_view to_string(OptimizerJob::Decay decay);
OptimizerJob::Decay decay_from(std::string_view name);
std::string_view to_string(OptimizerJob::Implementation implementation);
OptimizerJob::Implementation implementation_from(std::string_view name);

struct ScheduleJob {
  enum class Name { Constant, Linear, Cosine } name = Name::Constant;
  int warmup_steps = 0;
  double min_lr_ratio = 0.1;

  bool operator==(const ScheduleJob&) const = default;
};
std::string_view to_string(ScheduleJob::Name name);
ScheduleJob::Name schedule_from(std::string_view name);

struct GradientAccumulation {
  int steps = 1;                                       // micro-steps per optimizer step
  enum class Sync { Every, Last } sync = Sync::Every;  // when gradients are reduced; Last: no_sync

  bool operator==(const GradientAccumulation&) const = default;
};
std::string_view to_string(GradientAccumulation::Sync sync);
GradientAccumulation::Sync accumulation_sync_from(std::string_view name);

/// Which results of forward are not kept for backward but computed again there.
struct ActivationCheckpointing {
  enum class Kind { None, Full, Selective, Every } kind = Kind::None;
  std::vector<OperatorKind> operators;     // Selective: these, inside every block
  std::vector<OperatorKind> every_second;  // Selective: of each of these kinds the second, fourth
                                           // ... in every block
  std::vector<std::string> modules;        // Selective: all in modules of these names ("mlp")
  int every = 1;                           // Every: each so many blocks, one whole

  bool operator==(const ActivationCheckpointing&) const = default;
};

/// Which attention of PyTorch runs: fused, or one operator at a time.
enum class AttentionKind { Sdpa, Eager };
std::string_view to_string(AttentionKind attention);
AttentionKind attention_from(std::string_view name);

/// The fused kernel behind sdpa, as far as its speed depends on it: FlashAttention-2 (PyTorch's
/// own), those written for the asynchronous tensor cores of Hopper and later (FlashAttention-3 and
/// -4, cuDNN), or one that computes what the causal mask hides as well.
enum class AttentionKernel { Flash2, Flash3, FlashUnmasked };
/// "flash2", "flash3", "flash-unmasked".
std::string_view to_string(AttentionKernel kernel);
AttentionKernel attention_kernel_from(std::string_view name);

/// What operands of the blocks' linear layers are rounded to ahead of every product: nothing, 8
/// bits (with scales of any granularity), or NVIDIA's 4 bits. Predicted, not executed.
enum class MatmulDtype { None, Float8, NvFp4 };
/// "none", "float8", "nvfp4".
std::string_view to_string(MatmulDtype dtype);
MatmulDtype matmul_dtype_from(std::string_view name);

struct TrainingJob {
  std::int64_t micro_batch = 1;         // sequences per rank and micro-step
  std::int64_t sequence_length = 4096;  // tokens
  GradientAccumulation gradient_accumulation;
  ActivationCheckpointing activation_checkpointing;
  int loss_chunks = 1;  // parts of the tokens whose logits exist at a time
  OptimizerJob optimizer;
  ScheduleJob schedule;
  std::optional<double> clip_grad_norm;
  AttentionKind attention = AttentionKind::Sdpa;
  AttentionKernel attention_kernel = AttentionKernel::Flash2;
  MatmulDtype matmul_dtype = MatmulDtype::None;

  Sizes sizes() const { return {.batch = micro_batch, .time = sequence_length}; }
  bool operator==(const TrainingJob&) const = default;
};

struct RunJob {
  std::string weights;  // safetensors file or folder; empty: initialise from the seed
  std::string tokens;
  Dtype token_dtype = Dtype::UInt16;
  std::string labels;      // int32 file as long as the tokens, -100: not counted; empty: the tokens
  std::string data_order;  // JSON [step][rank][micro-step] -> sequence numbers; empty: rank-strided
  int steps = 20;
  std::uint64_t seed = 0;
  std::string output = "out/";
  int checkpoint_every = 0;  // steps; 0: never

  bool operator==(const RunJob&) const = default;
};

/// Everything the user asked for, with every default resolved.
struct Job {
  ModelJob model;
  ClusterJob cluster;
  StrategyJob strategy;
  TrainingJob training;
  RunJob run;
  FieldPlaces places;  // of what a file or a flag says

  int world_size() const { return cluster.world_size(); }
  bool operator==(const Job&) const = default;
};

/// Tokens that all ranks train on in one step, with all its micro-steps. Throws InputError when
/// they are too many to count.
std::int64_t tokens_per_step(const Job& job);

/// ZERO_1, ZERO_2, ZERO_3.
bool is_zero(Strategy sharding);

/// Whether every rank keeps other gradients: those of what its part of a flat buffer touches
/// (DeepSpeed's stages 1 and 2).
bool keeps_flat_gradients(const StrategyJob& strategy);

/// When gradients are reduced unless a job says otherwise: always every time, but DeepSpeed up to
/// stage 1 reduces at the last micro-step.
GradientAccumulation::Sync usual_sync(const StrategyJob& strategy);

/// Sets the sharding, and with it the engine where the job's does not do it.
void set_sharding(Job& job, Strategy sharding);

/// Sets the world to `gpus`: one node when the GPU's usual node holds them, else whole nodes.
/// Throws InputError when they do not divide into nodes.
void set_world(Job& job, int gpus);

/// Most ranks of a job; what a plan costs does not depend on them, but counts must stay exact.
constexpr int kLargestWorld = 1 << 24;

/// Most tokens of a micro-batch; more would overflow byte counts of the largest models.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 28;

/// Learning rate of `step` (counted from 0) of `steps`; per step, dimensionless.
/// Warm-up: lr (step + 1) / warmup_steps; then from lr to lr * min_lr_ratio, as a line or half a
/// cosine.
double learning_rate(const OptimizerJob& optimizer, const ScheduleJob& schedule, int step,
                     int steps);

}  // namespace shardplan
