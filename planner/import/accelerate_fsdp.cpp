#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "planner/import/accelerate.h"
#include "planner/import/accelerate_values.h"
#include "planner/import/import_parts.h"
#include "plans/names.h"

// The rules are those of accelerate 1.15.0: the launcher turns fsdp_config into FSDP_* variables of
// the environment (utils/launch.py), FullyShardedDataParallelPlugin reads them
// (utils/dataclasses.py).

namespace shardplan::importing {
namespace {

constexpr std::array kStrategyNames{
    EnumName{Strategy::FullShard, "FULL_SHARD"},
    EnumName{Strategy::ShardGradOp, "SHARD_GRAD_OP"},
    EnumName{Strategy::NoShard, "NO_SHARD"},
    EnumName{Strategy::HybridShard, "HYBRID_SHARD"},
    EnumName{Strategy::HybridShardZero2, "HYBRID_SHARD_ZERO2"},
};

enum class StateDict { Full, Local, Sharded };
constexpr std::array kStateDictNames{
    EnumName{StateDict::Full, "FULL_STATE_DICT"},
    EnumName{StateDict::Local, "LOCAL_STATE_DICT"},
    EnumName{StateDict::Sharded, "SHARDED_STATE_DICT"},
};

constexpr std::array kPrefetchNames{
    EnumName{BackwardPrefetch::Pre, "BACKWARD_PRE"},
    EnumName{BackwardPrefetch::Post, "BACKWARD_POST"},
    EnumName{BackwardPrefetch::None, "NO_PREFETCH"},
};

enum class AutoWrap { Transformer, Size, None };
constexpr std::array kAutoWrapNames{
    EnumName{AutoWrap::Transformer, "TRANSFORMER_BASED_WRAP"},
    EnumName{AutoWrap::Size, "SIZE_BASED_WRAP"},
    EnumName{AutoWrap::None, "NO_WRAP"},
};

/// An enumerator that the file gives by name, in any case, or by its number in the table, counted
/// from 1. `numbered`: how many of the names have a number.
template <typename Enum, std::size_t N>
Enum choice(const Node& node, const std::string& name, const std::array<EnumName<Enum>, N>& names,
            std::size_t numbered) {
  const std::string word = upper(text_of(node, name));
  if (word.size() == 1 && word[0] >= '1' && static_cast<std::size_t>(word[0] - '1') < numbered)
    return names[static_cast<std::size_t>(word[0] - '1')].value;
  return located(node, [&] { return value_of(names, word, name); });
}

/// The strategy by any name that accelerate or PyTorch has for it.
Strategy sharding_of(const Node& node, const std::string& name) {
  if (upper(text_of(node, name)) == "_HYBRID_SHARD_ZERO2") return Strategy::HybridShardZero2;
  return choice(node, name, kStrategyNames, kStrategyNames.size());
}

class FsdpReader {
 public:
  FsdpReader(const Node& section, Imported& imported, AcceleratePrecision precision)
      : section_(&section, "fsdp_config", "fsdp"),
        imported_(imported),
        precision_(std::move(precision)) {}

  void read(int shard_group_of_parallelism) {
    read_version();
    version_ == 1 ? read_sharding() : read_resharding();
    read_mesh(shard_group_of_parallelism);
    read_wrap();
    read_precision();
    version_ == 1 ? read_prefetch() : ignore_what_fsdp2_lacks();
    read_offload();
    read_checkpointing();
    read_state_dict();
    read_loading();
    ignore_other_keys();
  }

 private:
  const Node* given(std::string_view key) { return section_.find_any(key); }
  void warn_of(const Node& node, std::string_view key, std::string text) {
    warn(imported_, node.where, std::string(key), std::move(text));
  }
  StrategyJob& strategy() { return imported_.job.strategy; }

  void read_version() {
    const Node* node = given("fsdp_version");
    const std::string text = section_.text("fsdp_version", "1");
    if (text != "1" && text != "2")
      fail(*node, fmt::format("fsdp_config.fsdp_version: expected 1 or 2, found '{}'", text));
    version_ = text == "2" ? 2 : 1;
    strategy().engine = version_ == 2 ? Engine::Fsdp2 : Engine::Fsdp1;
    strategy().layout = version_ == 2 ? Layout::PerParameter : Layout::Flat;
    imported_.set("fsdp_version", std::int64_t{version_});
  }

  /// FSDP1: fsdp_sharding_strategy alone decides, because the launcher always passes one on.
  void read_sharding() {
    if (const Node* node = given("fsdp_sharding_strategy"))
      strategy().sharding = sharding_of(*node, "fsdp_config.fsdp_sharding_strategy");
    const std::string_view name = to_string(strategy().sharding);
    imported_.set("strategy",
                  strategy().sharding == Strategy::NoShard ? "NO_SHARD (as DDP)" : name);
    const Node* reshard = given("fsdp_reshard_after_forward");
    if (reshard == nullptr) return;
    std::string meant;
    for (const auto& known : kStrategyNames)
      if (upper(reshard->text) == known.text && known.value != strategy().sharding)
        meant = known.text;
    if (is_yaml_boolean(*reshard, false) && strategy().sharding != Strategy::ShardGradOp)
      meant = "SHARD_GRAD_OP";
    if (!meant.empty()) imported_.set("user_meant", meant);
    warn_of(*reshard, "fsdp_reshard_after_forward",
            fmt::format("fsdp_reshard_after_forward: {} is not read from a file with fsdp_version "
                        "1: {} results, from {}; write fsdp_sharding_strategy: {}",
                        reshard->text, name,
                        given("fsdp_sharding_strategy") ? "fsdp_sharding_strategy" : "the default",
                        meant.empty() ? name : meant));
  }

  /// FSDP2: fsdp_reshard_after_forward alone decides, and is a boolean.
  void read_resharding() {
    const Node* node = given("fsdp_reshard_after_forward");
    if (node != nullptr)
      for (const auto& known : kStrategyNames)
        if (node->is_scalar() && upper(node->text) == known.text)
          fail(*node, fmt::format("fsdp_config.fsdp_reshard_after_forward: with fsdp_version 2 "
                                  "expected true (FULL_SHARD) or false (SHARD_GRAD_OP), found {}",
                                  node->text));
    const bool reshard = section_.truth("fsdp_reshard_after_forward", true);
    strategy().sharding = reshard ? Strategy::FullShard : Strategy::ShardGradOp;
    strategy().reshard_after_forward = ReshardAfterForward{.reshard = reshard};
    const std::string_view name = to_string(strategy().sharding);
    imported_.set("strategy", name);
    imported_.set("reshard_after_forward", reshard);
    if (const Node* sharding = given("fsdp_sharding_strategy")) {
      const Strategy meant = sharding_of(*sharding, "fsdp_config.fsdp_sharding_strategy");
      if (meant != strategy().sharding) imported_.set("user_meant", to_string(meant));
      warn_of(*sharding, "fsdp_sharding_strategy",
              fmt::format("fsdp_sharding_strategy: {} is ignored with fsdp_version 2: {} results, "
                          "from fsdp_reshard_after_forward: {}",
                          sharding->text, name, reshard));
    }
  }

  void read_mesh(int shard_group_of_parallelism) {
    const ClusterJob& cluster = imported_.job.cluster;
    const Strategy sharding = strategy().sharding;
    int group = cluster.world_size();
    if (sharding == Strategy::NoShard) group = 1;
    // Without process groups of its own, FSDP1 shards in the node and replicates across nodes.
    if (is_hybrid(sharding)) group = cluster.gpus_per_node;
    if (shard_group_of_parallelism > 0 && shard_group_of_parallelism < group) {
      group = shard_group_of_parallelism;
      strategy().sharding =
          sharding == Strategy::FullShard ? Strategy::HybridShard : Strategy::HybridShardZero2;
      imported_.set("strategy", to_string(strategy().sharding));
    }
    if (is_hybrid(strategy().sharding)) strategy().shard_group = group;
    set_shard_group(imported_, group);
    if (group == cluster.world_size() && strategy().shard_group)
      warn(imported_, given("fsdp_sharding_strategy")->where, "fsdp_sharding_strategy",
           fmt::format("{} on one node replicates nothing: it is FULL_SHARD or SHARD_GRAD_OP over "
                       "its {} GPUs",
                       to_string(strategy().sharding), group));
  }

  void read_wrap() {
    const Node* node = given("fsdp_auto_wrap_policy");
    const bool is_given = node != nullptr && node->kind != Node::Kind::Null;
    const AutoWrap policy =
        is_given ? choice(*node, "fsdp_config.fsdp_auto_wrap_policy", kAutoWrapNames, 0)
                 : AutoWrap::None;
    const Node* classes = given("fsdp_transformer_layer_cls_to_wrap");
    const Node* least = given("fsdp_min_num_params");
    if (policy == AutoWrap::Transformer) read_layer_classes(classes);
    if (policy == AutoWrap::Size) read_least_size(least);
    if (policy == AutoWrap::None) wrap_nothing(node, "no fsdp_auto_wrap_policy");
    const std::string_view name = name_of(kAutoWrapNames, policy);
    if (policy != AutoWrap::Transformer && classes != nullptr && classes->kind != Node::Kind::Null)
      warn_of(*classes, "fsdp_transformer_layer_cls_to_wrap",
              fmt::format("fsdp_transformer_layer_cls_to_wrap: {} is ignored with the wrap policy "
                          "{}; it needs fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
                          classes->text, name));
    if (policy != AutoWrap::Size && least != nullptr && least->text != "0")
      warn_of(*least, "fsdp_min_num_params",
              fmt::format("fsdp_min_num_params: {} is ignored with the wrap policy {}; it needs "
                          "fsdp_auto_wrap_policy: SIZE_BASED_WRAP",
                          least->text, name));
  }

  void read_layer_classes(const Node* node) {
    WrapPolicy& wrap = strategy().wrap;
    wrap = {};
    if (node == nullptr || node->kind == Node::Kind::Null) {
      imported_.set("wrap", "the classes of the model's _no_split_modules");
      return;
    }
    std::string_view rest = node->text;
    if (!node->is_scalar())
      fail(*node,
           "fsdp_config.fsdp_transformer_layer_cls_to_wrap: expected class names with ',' "
           "between them, found no text");
    while (true) {
      const auto comma = std::min(rest.find(','), rest.size());
      add_layer_class(*node, rest.substr(0, comma));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
    imported_.set("wrap",
                  fmt::format("class{} {}{}", wrap.layer_classes.size() == 1 ? "" : "es",
                              fmt::join(wrap.layer_classes, " and "),
                              version_ == 1 ? " (+ root unit with what is outside them)"
                                            : " (+ units of the embedding, of final norm and head, "
                                              "and the root)"));
  }

  void add_layer_class(const Node& node, std::string_view word) {
    const auto begin = std::min(word.find_first_not_of(' '), word.size());
    const auto end = word.find_last_not_of(' ') + 1;
    const std::string name(begin < end ? word.substr(begin, end - begin) : "");
    if (name.empty())
      fail(node, "fsdp_config.fsdp_transformer_layer_cls_to_wrap: a class name is missing");
    if (name.size() != word.size())
      warn_of(node, "fsdp_transformer_layer_cls_to_wrap",
              fmt::format("fsdp_transformer_layer_cls_to_wrap: accelerate keeps the space beside "
                          "'{}' and then finds no such class; write the names without spaces",
                          name));
    strategy().wrap.layer_classes.push_back(name);
  }

  void read_least_size(const Node* node) {
    WrapPolicy& wrap = strategy().wrap;
    std::int64_t least = 100'000'000;
    if (node != nullptr)
      least = integer_of(*node, "fsdp_config.fsdp_min_num_params", 0, std::int64_t{1} << 53);
    if (node != nullptr && node->text.find_first_not_of("0123456789") != std::string::npos)
      fail(*node,
           fmt::format("fsdp_config.fsdp_min_num_params: accelerate takes digits only, found "
                       "'{}'; write {}",
                       node->text, least));
    if (least == 0) return wrap_nothing(node, "fsdp_min_num_params: 0");
    wrap.kind = WrapPolicy::Kind::Size;
    wrap.min_params = least;
    imported_.set("wrap",
                  fmt::format("by size (SIZE_BASED_WRAP): units of at least {} parameters", least));
  }

  void wrap_nothing(const Node* node, std::string_view why) {
    strategy().wrap.kind = WrapPolicy::Kind::None;
    imported_.set("wrap", "none: one root unit holds the whole model (NO_WRAP)");
    warn(imported_, node != nullptr ? node->where : section_.fields().place(),
         "fsdp_auto_wrap_policy",
         fmt::format("{}: NO_WRAP, one unit for the whole model, which is gathered at once",
                     node != nullptr && upper(node->text) == "NO_WRAP"
                         ? "fsdp_auto_wrap_policy: NO_WRAP"
                         : why));
  }

  void read_precision() {
    if (precision_.dtype) {
      const Dtype dtype = *precision_.dtype;
      // FSDP2 leaves the model's buffers alone and casts the outputs instead.
      strategy().mixed_precision =
          MixedPrecision{dtype, dtype, version_ == 1 ? dtype : Dtype::Float32};
      imported_.set("compute_dtype", precision_.text);
      imported_.set("reduce_dtype", short_name(dtype));
      imported_.set(version_ == 1 ? "buffer_dtype" : "output_dtype", short_name(dtype));
      imported_.set("stored_param_dtype",
                    version_ == 1
                        ? "fp32 for trainable weights when mixed precision is on"
                        : "fp32 for all weights that are trained; frozen ones stay as loaded");
    } else {
      imported_.set("compute_dtype", "fp32 (as loaded: mixed precision is off)");
      imported_.set("reduce_dtype", "fp32 (as loaded)");
      imported_.set("stored_param_dtype", "as loaded, fp32 unless the script loads another dtype");
    }
    // fp32 parameters, gradients and two moments: 4 + 4 + 8.
    StateBytes bytes;
    const bool replicated = strategy().sharding == Strategy::NoShard;
    const bool offloaded = section_.truth("fsdp_offload_params", false);
    (offloaded ? bytes.host : replicated ? bytes.replicated : bytes.sharded) = 16;
    set_state_bytes(imported_, bytes);
  }

  void read_prefetch() {
    const Node* node = given("fsdp_backward_prefetch");
    const bool is_given = node != nullptr && node->kind != Node::Kind::Null;
    strategy().backward_prefetch =
        is_given ? choice(*node, "fsdp_config.fsdp_backward_prefetch", kPrefetchNames, 2)
                 : BackwardPrefetch::None;
    imported_.set("backward_prefetch",
                  strategy().backward_prefetch != BackwardPrefetch::None
                      ? std::string(name_of(kPrefetchNames, strategy().backward_prefetch))
                      : std::string(is_given ? "NONE" : "NONE (key absent)"));
    const bool forward = section_.truth("fsdp_forward_prefetch", false);
    strategy().forward_prefetch = forward ? 1 : 0;
    strategy().use_orig_params = section_.truth("fsdp_use_orig_params", true);
    imported_.set("forward_prefetch", forward);
    imported_.set("limit_all_gathers", true);  // no key sets it
    imported_.set("use_orig_params", strategy().use_orig_params);
    if (!is_given)
      warn(imported_, section_.fields().place(), "fsdp_backward_prefetch",
           "fsdp_backward_prefetch is absent: prefetch is off (NONE), PyTorch's own default would "
           "be BACKWARD_PRE");
  }

  void ignore_what_fsdp2_lacks() {
    // What FSDP2 does by itself: the next unit is gathered while the current one is in backward.
    strategy().backward_prefetch = BackwardPrefetch::Pre;
    imported_.set("backward_prefetch", "implicit");
    imported_.set("forward_prefetch", "implicit");
    imported_.set("use_orig_params", "always, in FSDP2");
    for (const auto& [key, effect] :
         {std::pair{"fsdp_backward_prefetch", "prefetch is implicit"},
          std::pair{"fsdp_forward_prefetch", "prefetch is implicit"},
          std::pair{"fsdp_use_orig_params", "original parameters are always used"},
          std::pair{"fsdp_sync_module_states", "no broadcast is asked for"}})
      if (const Node* node = given(key); node != nullptr && node->kind != Node::Kind::Null)
        warn_of(*node, key,
                fmt::format("{}: {} is ignored with fsdp_version 2: {}", key, node->text, effect));
  }

  void read_offload() {
    const bool offload = section_.truth("fsdp_offload_params", false);
    strategy().cpu_offload.params = offload;
    if (!offload) return imported_.set("offload", FactValue());
    imported_.set("offload", fmt::format("parameters, gradients and the optimizer step on the host "
                                         "CPU ({})",
                                         version_ == 1 ? "CPUOffload" : "CPUOffloadPolicy"));
  }

  void read_checkpointing() {
    const bool checkpointing = section_.truth("fsdp_activation_checkpointing", false);
    const bool offload = section_.truth("fsdp_activation_checkpointing_offload", false);
    if (offload && (!checkpointing || version_ != 2))
      fail(*given("fsdp_activation_checkpointing_offload"),
           "fsdp_config.fsdp_activation_checkpointing_offload: needs "
           "fsdp_activation_checkpointing: true and fsdp_version: 2");
    imported_.job.strategy.cpu_offload.activations = offload;
    imported_.set("activation_checkpointing", checkpointing);
    if (offload) imported_.set("activation_checkpointing_offload", true);
    if (checkpointing)
      imported_.job.training.activation_checkpointing.kind = ActivationCheckpointing::Kind::Full;
  }

  void read_state_dict() {
    const Node* node = given("fsdp_state_dict_type");
    const bool is_given = node != nullptr && node->kind != Node::Kind::Null;
    const StateDict otherwise = version_ == 1 ? StateDict::Full : StateDict::Sharded;
    const StateDict type = is_given ? choice(*node, "fsdp_config.fsdp_state_dict_type",
                                             kStateDictNames, kStateDictNames.size())
                                    : otherwise;
    if (version_ == 2 && type == StateDict::Local)
      fail(*node,
           "fsdp_config.fsdp_state_dict_type: LOCAL_STATE_DICT does not exist with "
           "fsdp_version 2; expected SHARDED_STATE_DICT or FULL_STATE_DICT");
    imported_.set("checkpoint", name_of(kStateDictNames, type));
  }

  void read_loading() {
    // The launcher asks Python whether the values are true, ahead of reading the words in them.
    if (section_.is_truthy("fsdp_cpu_ram_efficient_loading") &&
        !section_.is_truthy("fsdp_sync_module_states"))
      fail(*given("fsdp_sync_module_states"),
           "fsdp_config.fsdp_sync_module_states: must be true while fsdp_cpu_ram_efficient_loading "
           "is (its default); set fsdp_cpu_ram_efficient_loading: false too");
    const bool efficient = section_.truth("fsdp_cpu_ram_efficient_loading", true);
    bool sync = version_ == 1 ? section_.truth("fsdp_sync_module_states", true) : efficient;
    if (efficient && !sync) {
      warn_of(*given("fsdp_sync_module_states"), "fsdp_sync_module_states",
              "fsdp_sync_module_states: false is set to true, because "
              "fsdp_cpu_ram_efficient_loading is true");
      sync = true;
    }
    imported_.set("cpu_ram_efficient_loading", efficient);
    imported_.set("sync_module_states", sync);
    imported_.set("load", efficient ? "rank 0 real weights, others meta, then broadcast"
                          : sync    ? "every rank loads all weights, then rank 0 broadcasts"
                                    : "every rank loads all weights");
  }

  void ignore_other_keys() {
    if (const Node* ignored = given("fsdp_ignored_modules");
        ignored != nullptr && ignored->kind != Node::Kind::Null)
      warn_of(*ignored, "fsdp_ignored_modules",
              fmt::format("fsdp_ignored_modules: modules that match {} are neither sharded nor "
                          "synchronised; the job cannot say so and shards them",
                          ignored->text));
    const std::size_t before = imported_.warnings.size();
    warn_unread(imported_, section_.fields(), "accelerate 1.15.0");
    // What takes effect instead of a key that is near to one that is read.
    for (std::size_t i = before; i < imported_.warnings.size(); ++i) {
      std::string& text = imported_.warnings[i].text;
      if (text.find("'fsdp_backward_prefetch'") != std::string::npos)
        text +=
            fmt::format("; prefetch is {}", strategy().backward_prefetch == BackwardPrefetch::None
                                                ? "off (NONE)"
                                                : to_string(strategy().backward_prefetch));
      if (text.find("'fsdp_sharding_strategy'") != std::string::npos)
        text += fmt::format("; {} results", to_string(strategy().sharding));
    }
  }

  AccelerateSection section_;
  Imported& imported_;
  AcceleratePrecision precision_;
  int version_ = 1;
};

}  // namespace

void read_accelerate_fsdp(const Node& section, AcceleratePrecision precision,
                          int shard_group_of_parallelism, Imported& imported) {
  FsdpReader(section, imported, std::move(precision)).read(shard_group_of_parallelism);
}

}  // namespace shardplan::importing
