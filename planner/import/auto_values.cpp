#include "planner/import/auto_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "planner/import/import_parts.h"

namespace shardplan::importing {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kRules{{
    {"train_micro_batch_size_per_gpu", "the trainer's per_device_train_batch_size"},
    {"gradient_accumulation_steps", "the trainer's gradient_accumulation_steps"},
    {"train_batch_size", "the trainer: micro-batch x accumulation x world"},
    {"gradient_clipping", "the trainer's max_grad_norm"},
    {"fp16.enabled", "the trainer's fp16"},
    {"bf16.enabled", "the trainer's bf16"},
    {"optimizer.params.lr", "the trainer's learning_rate"},
    {"optimizer.params.betas", "the trainer's adam_beta1 and adam_beta2"},
    {"optimizer.params.eps", "the trainer's adam_epsilon"},
    {"optimizer.params.weight_decay", "the trainer's weight_decay"},
    {"scheduler.params.warmup_min_lr", "the trainer: 0"},
    {"scheduler.params.warmup_max_lr", "the trainer's learning_rate"},
    {"scheduler.params.warmup_num_steps", "the trainer's warmup steps"},
    {"scheduler.params.total_num_steps", "the trainer's number of steps"},
    {"zero_optimization.reduce_bucket_size", "the model: hidden_size x hidden_size"},
    {"zero_optimization.stage3_prefetch_bucket_size",
     "the model, at stage 3: 0.9 x hidden_size x hidden_size"},
    {"zero_optimization.stage3_param_persistence_threshold",
     "the model, at stage 3: 10 x hidden_size"},
}};

int stage_of(const Node& document) {
  for (const Entry& entry : document.entries)
    if (entry.key == "zero_optimization")
      for (const Entry& zero : entry.value.entries)
        if (zero.key == "stage" && zero.value.text == "3") return 3;
  return 0;
}

class AutoFiller {
 public:
  AutoFiller(const ImportOptions& options, int stage, Imported& imported)
      : options_(options), stage_(stage), imported_(imported) {}

  Node filled(const Node& mapping, const std::string& path) {
    Node result = mapping;
    result.entries.clear();
    for (const Entry& entry : mapping.entries) {
      const std::string key = path.empty() ? entry.key : path + '.' + entry.key;
      if (is_auto(entry.value)) {
        if (const std::string size = size_of(key); !size.empty()) {
          result.entries.push_back(entry);
          result.entries.back().value.kind = Node::Kind::Plain;
          result.entries.back().value.text = size;
        } else {
          leave(entry, key);
        }
      } else if (entry.value.kind == Node::Kind::Mapping) {
        result.entries.push_back({entry.key, entry.where, filled(entry.value, key)});
      } else {
        result.entries.push_back(entry);
      }
    }
    return result;
  }

 private:
  void leave(const Entry& entry, const std::string& key) {
    const std::string rule = auto_rule(key);
    if (!rule.empty()) return leave_open(imported_, entry.value.where, key, rule);
    warn(imported_, entry.value.where, key,
         fmt::format("{}: auto is filled by nobody: DeepSpeed's default results", key));
  }

  /// The size that follows from the model; empty when none does or the model is not known.
  std::string size_of(const std::string& key) const {
    if (!options_.hidden_size) return "";
    const std::int64_t hidden = *options_.hidden_size;
    if (key == "zero_optimization.reduce_bucket_size") return std::to_string(hidden * hidden);
    if (stage_ != 3) return "";
    if (key == "zero_optimization.stage3_prefetch_bucket_size")
      return std::to_string(static_cast<std::int64_t>(0.9 * static_cast<double>(hidden) *
                                                      static_cast<double>(hidden)));
    if (key == "zero_optimization.stage3_param_persistence_threshold")
      return std::to_string(10 * hidden);
    return "";
  }

  const ImportOptions& options_;
  int stage_;
  Imported& imported_;
};

}  // namespace

bool is_auto(const Node& node) { return node.is_scalar() && node.text == "auto"; }

std::string auto_rule(const std::string& key) {
  const auto found = std::ranges::find(kRules, key, &decltype(kRules)::value_type::first);
  return found == kRules.end() ? "" : std::string(found->second);
}

Node without_auto(const Node& document, const ImportOptions& options, Imported& imported) {
  return AutoFiller(options, stage_of(document), imported).filled(document, "");
}

}  // namespace shardplan::importing
