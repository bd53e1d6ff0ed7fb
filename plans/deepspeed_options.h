#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "plans/units.h"

namespace shardplan {

class Fields;

/// Elements of which the part of a rank in a flat buffer of stages 1 and 2 is a multiple:
/// nccl_start_alignment_factor of deepspeed/runtime/zero/stage_1_and_2.py.
constexpr std::int64_t kNcclStartAlignment = 2;

/// Where DeepSpeed keeps parameters or optimizer state.
enum class OffloadDevice { None, Cpu, Nvme };
/// "none", "cpu", "nvme".
std::string_view to_string(OffloadDevice device);
OffloadDevice offload_device_from(std::string_view name);

/// zero_optimization.offload_param and .offload_optimizer; what only one of them has is not read
/// from, nor written to, the other.
struct ZeroOffload {
  OffloadDevice device = OffloadDevice::None;
  std::string nvme_path;                    // empty: null
  std::int64_t buffer_count = 5;            // optimizer: 4
  std::int64_t buffer_size = 100'000'000;   // elements; param only
  std::int64_t max_in_cpu = 1'000'000'000;  // elements; param only
  bool pin_memory = true;
  bool pipeline_read = false;  // the rest: optimizer only
  bool pipeline_write = false;
  bool fast_init = false;
  double ratio = 1;  // share of the state that is offloaded
  bool super_offload = false;
  double cpuadam_cores_perc = 0.8;

  bool operator==(const ZeroOffload&) const = default;
};

/// DeepSpeed's zero_optimization section without the stage, with its names and the defaults of
/// 0.19.8 (deepspeed/runtime/zero/config.py), and data_types.grad_accum_dtype. Sizes in elements.
struct DeepSpeedOptions {
  std::optional<bool> overlap_comm;  // null: only stage 3 does
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  std::int64_t reduce_bucket_size = 500'000'000;
  bool use_multi_rank_bucket_allreduce = true;
  bool allgather_partitions = true;
  std::int64_t allgather_bucket_size = 500'000'000;
  bool round_robin_gradients = false;
  bool parameter_alignment = false;
  std::int64_t sub_group_size = 1'000'000'000;
  std::int64_t prefetch_bucket_size = 50'000'000;
  std::int64_t param_persistence_threshold = 100'000;
  std::int64_t model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_live_parameters = 1'000'000'000;
  std::int64_t max_reuse_distance = 1'000'000'000;
  std::int64_t module_granularity_threshold = 0;
  bool gather_16bit_weights_on_model_save = false;
  bool use_all_reduce_for_fetch_params = false;
  bool allgather_sequential = false;
  bool memory_efficient_linear = true;
  std::int64_t zero_hpz_partition_size = 1;  // ranks that hold a second copy of the shards
  bool zero_quantized_weights = false;
  bool zero_quantized_nontrainable_weights = false;
  bool zero_quantized_gradients = false;
  ZeroOffload offload_param;
  ZeroOffload offload_optimizer{.nvme_path = {}, .buffer_count = 4};
  std::optional<Dtype> grad_accum_dtype;  // null: the model's

  bool operator==(const DeepSpeedOptions&) const = default;
};

/// Calls `visit(key, value, least)` for every scalar option in DeepSpeed's spelling, least being
/// the smallest value of an integer. Options is DeepSpeedOptions, const or not.
template <typename Options, typename Visit>
void visit_zero_options(Options& options, Visit&& visit) {
  visit("overlap_comm", options.overlap_comm, 0);
  visit("contiguous_gradients", options.contiguous_gradients, 0);
  visit("reduce_scatter", options.reduce_scatter, 0);
  visit("reduce_bucket_size", options.reduce_bucket_size, 1);
  visit("use_multi_rank_bucket_allreduce", options.use_multi_rank_bucket_allreduce, 0);
  visit("allgather_partitions", options.allgather_partitions, 0);
  visit("allgather_bucket_size", options.allgather_bucket_size, 0);
  visit("round_robin_gradients", options.round_robin_gradients, 0);
  visit("parameter_alignment", options.parameter_alignment, 0);
  visit("sub_group_size", options.sub_group_size, 0);
  visit("stage3_prefetch_bucket_size", options.prefetch_bucket_size, 0);
  visit("stage3_param_persistence_threshold", options.param_persistence_threshold, 0);
  visit("stage3_model_persistence_threshold", options.model_persistence_threshold, 0);
  visit("stage3_max_live_parameters", options.max_live_parameters, 0);
  visit("stage3_max_reuse_distance", options.max_reuse_distance, 0);
  visit("stage3_module_granularity_threshold", options.module_granularity_threshold, 0);
  visit("stage3_gather_16bit_weights_on_model_save", options.gather_16bit_weights_on_model_save, 0);
  visit("stage3_use_all_reduce_for_fetch_params", options.use_all_reduce_for_fetch_params, 0);
  visit("stage3_allgather_sequential", options.allgather_sequential, 0);
  visit("memory_efficient_linear", options.memory_efficient_linear, 0);
  visit("zero_hpz_partition_size", options.zero_hpz_partition_size, 0);
  visit("zero_quantized_weights", options.zero_quantized_weights, 0);
  visit("zero_quantized_nontrainable_weights", options.zero_quantized_nontrainable_weights, 0);
  visit("zero_quantized_gradients", options.zero_quantized_gradients, 0);
}

/// The same for offload_param.
template <typename Offload, typename Visit>
void visit_offload_param(Offload& offload, Visit&& visit) {
  visit("device", offload.device, 0);
  visit("nvme_path", offload.nvme_path, 0);
  visit("buffer_count", offload.buffer_count, 0);
  visit("buffer_size", offload.buffer_size, 0);
  visit("max_in_cpu", offload.max_in_cpu, 0);
  visit("pin_memory", offload.pin_memory, 0);
}

/// The same for offload_optimizer.
template <typename Offload, typename Visit>
void visit_offload_optimizer(Offload& offload, Visit&& visit) {
  visit("device", offload.device, 0);
  visit("nvme_path", offload.nvme_path, 0);
  visit("buffer_count", offload.buffer_count, 0);
  visit("pin_memory", offload.pin_memory, 0);
  visit("pipeline_read", offload.pipeline_read, 0);
  visit("pipeline_write", offload.pipeline_write, 0);
  visit("fast_init", offload.fast_init, 0);
  visit("ratio", offload.ratio, 0);
  visit("super_offload", offload.super_offload, 0);
  visit("cpuadam_cores_perc", offload.cpuadam_cores_perc, 0);
}

/// Reads the options that stand in a mapping; what is unknown there is left to the caller's
/// refuse_unknown(). Throws InputError.
void read_zero_options(Fields& fields, DeepSpeedOptions& options);

}  // namespace shardplan
