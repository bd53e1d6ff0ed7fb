#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/import/auto_values.h"
#include "planner/import/batch_sizes.h"
#include "planner/import/deepspeed_sections.h"
#include "planner/import/import_parts.h"

namespace shardplan {
namespace importing {
namespace {

constexpr int kUsualWorld = 8;  // of a file that fixes none: the contract's default node

/// Top-level keys that DeepSpeed 0.19.8 reads and that do not change what is planned.
constexpr std::array kOtherKeys{
    "steps_per_print",
    "wall_clock_breakdown",
    "memory_breakdown",
    "dump_state",
    "disable_allgather",
    "disable_python_gc",
    "prescale_gradients",
    "gradient_predivide_factor",
    "gradient_allreduce_op",
    "seq_parallel_communication_data_type",
    "managed_gradient_accumulation",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "dataloader_drop_last",
    "log_level",
    "vocabulary_size",
    "flops_profiler",
    "tensorboard",
    "wandb",
    "csv_monitor",
    "comet",
    "comms_logger",
    "aio",
    "autotuning",
    "checkpoint",
    "data_efficiency",
    "compile",
    "timers",
    "datastates_ckpt",
    "hybrid_engine",
    "use_data_before_expert_parallelism",
    "weight_quantization",
    "inference",
    "activation_checkpointing",
};

/// Keys that 0.19.8 refuses (_REMOVED_TOP_LEVEL_CONFIG_KEYS of runtime/config.py).
constexpr std::array kRemovedKeys{
    "nebula",
    "compression_training",
    "amp",
    "quantize_training",
    "sparse_gradients",
    "eigenvalue",
    "sparse_attention",
    "elasticity",
    "graph_harvesting",
    "curriculum_learning",
    "progressive_layer_drop",
};

void refuse_removed(Fields& root) {
  for (const char* key : kRemovedKeys)
    if (const Node* node = root.find_any(key))
      fail(*node, fmt::format("{}: DeepSpeed 0.19.8 has removed it and refuses the file", key));
}

/// Parallelism that a job cannot say.
void refuse_other_parallelism(Fields& root) {
  const auto refuse = [](Fields fields, const char* key, std::int64_t most) {
    std::int64_t size = most;
    fields.read(key, size, 0, kLargestWorld);
    if (size > most)
      fail(*fields.find(key), fmt::format("{}: {} is not supported yet; supported: {}",
                                          fields.name_of(key), size, most));
  };
  refuse(root.section("tensor_parallel"), "autotp_size", 1);
  std::int64_t sequence = 1;
  root.read("sequence_parallel_size", sequence, 1, kLargestWorld);
  if (sequence > 1)
    fail(*root.find("sequence_parallel_size"),
         fmt::format("sequence_parallel_size: {} is not supported yet; supported: 1", sequence));
  Fields expert = root.section("expert_parallel");
  bool enabled = false;
  expert.read("enabled", enabled);
  if (enabled) expert.fail("expert_parallel.enabled: true is not supported yet; supported: false");
  Fields pipeline = root.section("pipeline");
  if (const Node* stages = pipeline.find("stages"); stages != nullptr && stages->text != "1")
    fail(*stages,
         fmt::format("pipeline.stages: {} is not supported yet; supported: 1", stages->text));
}

BatchSizes read_batch_sizes(Fields& root) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  BatchSizes sizes;
  const auto read = [&](const char* key, std::optional<std::int64_t>& size) {
    if (const Node* node = root.find(key)) size = integer_of(*node, key, 1, kMost);
  };
  read("train_batch_size", sizes.train_batch);
  read("train_micro_batch_size_per_gpu", sizes.micro_batch);
  read("gradient_accumulation_steps", sizes.accumulation);
  return sizes;
}

bool has_auto_batch(const Node& document) {
  return std::ranges::any_of(document.entries, [](const Entry& entry) {
    return (entry.key == "train_batch_size" || entry.key == "train_micro_batch_size_per_gpu" ||
            entry.key == "gradient_accumulation_steps") &&
           is_auto(entry.value);
  });
}

void set_batch_sizes(const Node& document, Fields& root, int stage, Imported& imported) {
  BatchSizes sizes = read_batch_sizes(root);
  const std::optional<std::int64_t> only_world = world_of(sizes);
  if (only_world) imported.set("valid_world", *only_world);
  const bool is_open = has_auto_batch(document);
  if (is_open && !sizes.train_batch && !sizes.micro_batch) sizes.micro_batch = 1;
  try {
    sizes = resolve_batch_sizes(sizes, imported.job.world_size());
  } catch (const InputError& error) {
    root.fail(error.what());
  }
  TrainingJob& training = imported.job.training;
  if (*sizes.micro_batch > (1 << 28) || *sizes.accumulation > (1 << 20))
    root.fail("train_batch_size: too large for a job");
  training.micro_batch = *sizes.micro_batch;
  training.sequence_length =
      std::min(training.sequence_length, std::int64_t{1 << 28} / training.micro_batch);
  training.gradient_accumulation.steps = static_cast<int>(*sizes.accumulation);
  // Stages 2 and 3 reduce after every micro-step, the others at the last one.
  training.gradient_accumulation.sync =
      stage >= 2 ? GradientAccumulation::Sync::Every : GradientAccumulation::Sync::Last;
  const auto set = [&](const char* name, std::int64_t size) {
    imported.set(name, is_open ? FactValue() : FactValue(size));
  };
  set("train_batch_size", *sizes.train_batch);
  set("train_micro_batch_size_per_gpu", *sizes.micro_batch);
  set("gradient_accumulation_steps", *sizes.accumulation);
}

void set_precision(const ZeroPrecision& precision, int stage, Fields& root, Imported& imported) {
  StrategyJob& strategy = imported.job.strategy;
  const Dtype compute = precision.autocast.value_or(precision.model);
  if (compute != Dtype::Float32 || precision.reduce != Dtype::Float32)
    strategy.mixed_precision = MixedPrecision{compute, precision.reduce, precision.model};
  if (precision.accumulate != precision.model)
    strategy.deepspeed->grad_accum_dtype = precision.accumulate;
  if (stage == 0 && precision.accumulate != precision.model)
    root.fail(
        fmt::format("data_types.grad_accum_dtype: {} with a model in {} needs ZeRO stage 1, "
                    "2 or 3",
                    short_name(precision.accumulate), short_name(precision.model)));
  if (stage == 0 && precision.master != Dtype::Float32)
    root.fail("master weights in 16 bits need ZeRO stage 1, 2 or 3");
  imported.job.training.optimizer.state_dtype = precision.states;
  imported.set("compute_dtype", precision.compute);
  const bool is_open = precision.compute.starts_with("from the trainer");
  const auto set = [&](const char* name, Dtype dtype) {
    imported.set(name, is_open && dtype == precision.model ? std::string_view(precision.compute)
                                                           : short_name(dtype));
  };
  set("reduce_dtype", precision.reduce);
  set("grad_accum_dtype", precision.accumulate);
  imported.set(
      "stored_param_dtype",
      precision.model == Dtype::Float32
          ? "fp32, and a second fp32 copy in the optimizer's shards"
          : fmt::format("{} copy in the optimizer, {} for compute", short_name(precision.master),
                        is_open ? "16 bits" : short_name(precision.model)));
  if (stage == 0 && precision.model != Dtype::Float32)
    warn(imported, root.place(), "zero_optimization.stage",
         "without ZeRO the 16-bit optimizer makes fp32 gradients of the whole model at its step, 2 "
         "to 4 bytes a parameter above the state that is counted");
  if (stage == 1 && precision.model == Dtype::BFloat16 && precision.accumulate == Dtype::Float32)
    warn(imported, root.place(), "data_types.grad_accum_dtype",
         "bf16 with fp32 gradients at stage 1 is another optimizer (BF16_Optimizer): every rank "
         "keeps the fp32 gradients whole");
}

/// Bytes of state: parameters and gradients in the model's and the gradients' dtype, master copy
/// and two moments; fp32 keeps a second fp32 copy as master at stages 1 to 3.
void set_bytes(const ZeroPrecision& precision, int stage, Imported& imported) {
  const Bytes param = size_of(precision.model);
  const Bytes gradient = size_of(precision.accumulate);
  const bool has_master = stage > 0 || precision.model != Dtype::Float32;
  const Bytes state = (has_master ? size_of(precision.master) : 0) + 2 * size_of(precision.states);
  StateBytes bytes;
  (stage >= 3 ? bytes.sharded : bytes.replicated) += param;
  (stage >= 2 ? bytes.sharded : bytes.replicated) += gradient;
  (stage >= 1 ? bytes.sharded : bytes.replicated) += state;
  const DeepSpeedOptions& options = *imported.job.strategy.deepspeed;
  if (stage >= 1 && options.offload_optimizer.device != OffloadDevice::None) {
    bytes.sharded -= state;
    bytes.host += state;
  }
  if (stage == 3 && options.offload_param.device != OffloadDevice::None) {
    bytes.sharded -= param;
    bytes.host += param;
  }
  set_state_bytes(imported, bytes);
}

void set_strategy_facts(int stage, Imported& imported) {
  const DeepSpeedOptions& options = *imported.job.strategy.deepspeed;
  const std::int64_t second_group = options.zero_hpz_partition_size;
  if (stage == 3 && second_group > 1) {
    imported.set(
        "strategy",
        fmt::format("no exact FSDP equivalent: FULL_SHARD of gradients and optimizer state, "
                    "parameters gathered again in groups of {} as in HYBRID_SHARD (hpZ)",
                    second_group));
    imported.set("difference",
                 fmt::format("a second copy of the 16-bit parameters is kept, sharded over groups "
                             "of {} ranks, so that backward gathers inside the node",
                             second_group));
    return;
  }
  constexpr std::array kNames{"NO_SHARD (DDP)",
                              "no exact FSDP equivalent (optimizer state sharded only)",
                              "SHARD_GRAD_OP (nearest)", "FULL_SHARD"};
  imported.set("strategy", kNames[static_cast<std::size_t>(stage)]);
  if (stage == 1)
    imported.set("difference",
                 "ZeRO-1 keeps parameters and gradients whole on every rank, only optimizer state "
                 "is sharded");
  if (stage == 2)
    imported.set("difference",
                 "ZeRO-2 keeps the 16-bit weights whole on every rank all the time; SHARD_GRAD_OP "
                 "shards them outside forward/backward");
}

std::string offload_text(const ZeroOffload& offload, std::string_view what) {
  if (offload.device == OffloadDevice::None) return "";
  return fmt::format("{} to {}", what, to_string(offload.device));
}

void set_zero_facts(int stage, Imported& imported) {
  const DeepSpeedOptions& options = *imported.job.strategy.deepspeed;
  const bool overlaps = options.overlap_comm.value_or(stage == 3);
  imported.set("zero_stage", std::int64_t{stage});
  imported.set("overlap_comm", overlaps);
  imported.set("buckets_elements.reduce", options.reduce_bucket_size);
  imported.set("buckets_elements.allgather", options.allgather_bucket_size);
  if (stage == 3) {
    imported.set("buckets_elements.prefetch", options.prefetch_bucket_size);
    imported.set("param_persistence_threshold", options.param_persistence_threshold);
    imported.set("prefetch", options.prefetch_bucket_size == 0
                                 ? std::string("off (bucket 0)")
                                 : fmt::format("on ({} elements)", options.prefetch_bucket_size));
    imported.set("sub_group_size", options.sub_group_size);
    imported.set("zero_hpz_partition_size", options.zero_hpz_partition_size);
    imported.set("quantized_weights", options.zero_quantized_weights);
    imported.set("quantized_gradients", options.zero_quantized_gradients);
  }
  const std::string optimizer =
      stage >= 1 ? offload_text(options.offload_optimizer, "optimizer state") : "";
  const std::string param = stage == 3 ? offload_text(options.offload_param, "parameters") : "";
  const std::string both = optimizer + (optimizer.empty() || param.empty() ? "" : ", ") + param;
  imported.set("offload", both.empty() ? FactValue() : FactValue(both));
  imported.set("checkpoint",
               stage != 3 ? std::string("sharded optimizer state, whole weights")
                          : fmt::format("sharded; whole 16-bit weights are {}gathered at save "
                                        "(stage3_gather_16bit_weights_on_model_save)",
                                        options.gather_16bit_weights_on_model_save ? "" : "not "));
  set_shard_group(imported, stage == 0 ? 1 : imported.job.world_size());
}

void set_open_facts(Imported& imported) {
  const auto is_trainers = [](const OpenValue& open) {
    return open.decided_by.starts_with("the trainer") || open.decided_by.starts_with("the model");
  };
  const auto count = std::ranges::count_if(imported.open, is_trainers);
  if (count == 0) return;
  imported.set("resolved_by", "trainer arguments fill every auto");
  imported.set("checked",
               fmt::format("contains auto: {} values are not resolved by the parser alone", count));
}

/// The world that a file's three batch sizes fix.
std::optional<std::int64_t> world_of_file(const Node& document) {
  Node known = document;  // "auto" is no number
  std::erase_if(known.entries, [](const Entry& entry) { return is_auto(entry.value); });
  Fields root(known, "");
  return world_of(read_batch_sizes(root));
}

}  // namespace

void read_deepspeed(const Node& document, const ImportOptions& options, Imported& imported) {
  const Node filled = without_auto(document, options, imported);
  Fields root(filled, "");
  refuse_removed(root);
  refuse_other_parallelism(root);
  for (const char* key : kOtherKeys)
    root.find_any(key);
  const ZeroPrecision precision = read_zero_precision(document, root, imported);
  const int stage = read_zero_optimization(root, imported);
  set_strategy_facts(stage, imported);
  set_batch_sizes(document, root, stage, imported);
  read_zero_training(document, root, imported);
  set_precision(precision, stage, root, imported);
  set_bytes(precision, stage, imported);
  set_zero_facts(stage, imported);
  if (const Node* checkpointing = root.find("activation_checkpointing"))
    warn(imported, checkpointing->where, "activation_checkpointing",
         "activation_checkpointing turns nothing on: it configures deepspeed.checkpointing, which "
         "the model's code has to call");
  imported.job.strategy.wrap.kind = WrapPolicy::Kind::None;
  imported.job.strategy.profile = Profile::TorchEager;
  set_open_facts(imported);
  warn_unread(imported, root, "DeepSpeed 0.19.8");
}

}  // namespace importing

Imported import_deepspeed(std::string_view json, const std::string& source,
                          const ImportOptions& options) {
  const Node document = parse_json(json, source, JsonPlaces::Lines);
  Imported imported;
  imported.job = importing::empty_job(options);
  imported.tool = "DeepSpeed json";
  imported.set("kind", imported.tool);
  const std::optional<std::int64_t> fixed = importing::world_of_file(document);
  const int world =
      options.gpus ? *options.gpus : static_cast<int>(fixed.value_or(importing::kUsualWorld));
  set_world(imported.job, world);
  importing::set_world(imported, world, options.nodes.value_or(imported.job.cluster.nodes));
  if (!options.gpus && !fixed)
    importing::leave_open(
        imported, document.where, "world",
        fmt::format("the launcher; {} ranks are planned, --gpus N says otherwise", world));
  importing::read_deepspeed(document, options, imported);
  return imported;
}

}  // namespace shardplan
