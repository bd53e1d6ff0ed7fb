#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "planner/import/deepspeed_sections.h"
#include "planner/import/import_parts.h"
#include "plans/deepspeed_options.h"

// deepspeed/runtime/zero/config.py of 0.19.8.

namespace shardplan::importing {
namespace {

using Names = std::initializer_list<std::string_view>;

/// Options that go by two names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kAliases{{
    {"prefetch_bucket_size", "stage3_prefetch_bucket_size"},
    {"param_persistence_threshold", "stage3_param_persistence_threshold"},
    {"model_persistence_threshold", "stage3_model_persistence_threshold"},
    {"max_live_parameters", "stage3_max_live_parameters"},
    {"max_reuse_distance", "stage3_max_reuse_distance"},
    {"module_granularity_threshold", "stage3_module_granularity_threshold"},
    {"use_all_reduce_for_fetch_params", "stage3_use_all_reduce_for_fetch_params"},
    {"allgather_sequential", "stage3_allgather_sequential"},
    {"gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"},
    {"stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"},
}};

/// Known to DeepSpeed; they change neither memory nor communication of what is planned.
constexpr std::array kOtherOptions{
    "compute_grad_norm",
    "load_from_fp32_weights",
    "elastic_checkpoint",
    "ignore_unused_parameters",
    "legacy_stage1",
    "pipeline_loading_checkpoint",
    "override_module_apply",
    "log_trace_cache_warnings",
    "enable_sanity_checks",
    "leaf_module",
    "save_muon_momentum_buffer_in_memory",
};

constexpr std::array kRemoved{"mics_shard_size", "mics_hierarchical_params_gather",
                              "zeropp_loco_param"};

bool is_for_stage3(std::string_view key) {
  constexpr std::array kKeys{"offload_param", "cpu_offload_param", "sub_group_size",
                             "memory_efficient_linear"};
  return key.starts_with("stage3_") || key.starts_with("zero_") ||
         std::ranges::find(kKeys, key) != kKeys.end();
}

bool is_for_stages_1_2(std::string_view key) {
  constexpr std::array kKeys{"allgather_partitions", "use_multi_rank_bucket_allreduce",
                             "round_robin_gradients", "parameter_alignment", "reduce_scatter"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

class ZeroReader {
 public:
  ZeroReader(const Node& section, Imported& imported)
      : section_(with_new_names(section, imported)),
        fields_(section_, "zero_optimization"),
        imported_(imported) {}

  int read() {
    for (const char* key : kRemoved)
      if (const Node* node = fields_.find_any(key))
        fail(*node, fmt::format("{}: DeepSpeed 0.19.8 has removed it", fields_.name_of(key)));
    fields_.read("stage", stage_, 0, 3);
    if (const Node* zenflow = fields_.find("zenflow"))
      fail(*zenflow, "zero_optimization.zenflow is not supported yet; supported: null");
    for (const char* key : kOtherOptions)
      fields_.find_any(key);
    StrategyJob& strategy = imported_.job.strategy;
    strategy.engine = Engine::DeepSpeed;
    strategy.deepspeed.emplace();
    constexpr std::array kStages{Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Zero3};
    strategy.sharding = kStages[static_cast<std::size_t>(stage_)];
    read_zero_options(fields_, *strategy.deepspeed);
    fields_.refuse_unknown();
    name_what_has_no_effect();
    check_offload(*strategy.deepspeed);
    return stage_;
  }

 private:
  /// Puts the names of today for those that are deprecated or aliases.
  static Node with_new_names(const Node& section, Imported& imported) {
    Node result = section;
    for (Entry& entry : result.entries) {
      const std::string old = entry.key;
      for (const auto& [alias, name] : kAliases)
        if (entry.key == alias) entry.key = name;
      if (old == "cpu_offload") entry.key = "offload_optimizer";
      if (old == "cpu_offload_param") entry.key = "offload_param";
      if (old == "cpu_offload" || old == "cpu_offload_param") entry.value = device_of(entry.value);
      const bool deprecated = old.starts_with("cpu_offload") || old.find("_fp16_") != old.npos;
      if (deprecated)
        warn(
            imported, entry.where, "zero_optimization." + old,
            old == "cpu_offload_use_pin_memory"
                ? old + " is ignored: pin_memory of offload_param and offload_optimizer replaces it"
                : fmt::format("{} is deprecated: {} replaces it", old, entry.key));
    }
    std::erase_if(result.entries,
                  [](const Entry& entry) { return entry.key == "cpu_offload_use_pin_memory"; });
    for (std::size_t i = 0; i < result.entries.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (result.entries[i].key == result.entries[j].key)
          throw InputError(fmt::format("{}: zero_optimization.{} is there twice, under two names",
                                       result.entries[i].where, result.entries[i].key));
    return result;
  }

  /// {"device": "cpu"} for true, else null.
  static Node device_of(const Node& flag) {
    Node result;
    result.where = flag.where;
    if (!boolean_of(flag, "zero_optimization.cpu_offload")) return result;
    result.kind = Node::Kind::Mapping;
    Node device;
    device.kind = Node::Kind::Quoted;
    device.text = "cpu";
    device.where = flag.where;
    result.entries.push_back({"device", flag.where, device});
    return result;
  }

  void name_what_has_no_effect() {
    for (const Entry& entry : section_.entries) {
      const std::string key = fields_.name_of(entry.key);
      if (entry.key == "stage" || entry.value.kind == Node::Kind::Null) continue;
      const auto ignored = [&](std::string_view why) {
        warn(imported_, entry.where, key,
             fmt::format("{} is ignored at stage {}: {}", entry.key, stage_, why));
      };
      if (stage_ == 0)
        ignored("nothing is partitioned");
      else if (stage_ < 3 && is_for_stage3(entry.key))
        ignored("it is for stage 3");
      else if (stage_ == 3 && is_for_stages_1_2(entry.key))
        ignored("it is for stages 1 and 2");
      else if (entry.key == "allgather_bucket_size")
        ignored("DeepSpeed gathers the whole flat buffer in one call");
      else if (stage_ < 3 && entry.key == "reduce_scatter" && entry.value.text == "true")
        ignored("gradients are reduced by one all_reduce a bucket");
    }
  }

  void check_offload(const DeepSpeedOptions& options) {
    const double ratio = options.offload_optimizer.ratio;
    if (ratio < 1 && stage_ != 3)
      fields_.fail(fmt::format(
          "zero_optimization.offload_optimizer.ratio: {} needs stage 3, found {}", ratio, stage_));
    for (const auto* offload : {&options.offload_param, &options.offload_optimizer})
      if (offload->device == OffloadDevice::Nvme && offload->nvme_path.empty())
        fields_.fail("zero_optimization: an offload to nvme needs its nvme_path");
  }

  Node section_;
  Fields fields_;
  Imported& imported_;
  int stage_ = 0;
};

}  // namespace

int read_zero_optimization(Fields& root, Imported& imported) {
  static const Node kEmpty;
  const Node* node = root.find("zero_optimization");
  if (node != nullptr && node->kind == Node::Kind::Plain) {
    Node section;
    section.kind = Node::Kind::Mapping;
    section.where = node->where;
    Node stage = *node;
    stage.text = boolean_of(*node, "zero_optimization") ? "1" : "0";
    section.entries.push_back({"stage", node->where, stage});
    warn(imported, node->where, "zero_optimization",
         fmt::format("zero_optimization: {} is deprecated: stage {} results", node->text,
                     stage.text));
    return ZeroReader(section, imported).read();
  }
  if (node != nullptr && node->kind != Node::Kind::Mapping) root.section("zero_optimization");
  return ZeroReader(node != nullptr ? *node : kEmpty, imported).read();
}

}  // namespace shardplan::importing
