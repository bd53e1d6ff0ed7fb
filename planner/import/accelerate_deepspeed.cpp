#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "planner/import/accelerate.h"
#include "planner/import/import_parts.h"

// The rules are those of DeepSpeedPlugin in accelerate 1.15.0 (utils/dataclasses.py) and of what
// its launcher passes on (utils/launch.py).

namespace shardplan::importing {
namespace {

/// Keys that a DeepSpeed file of its own replaces; accelerate refuses them beside one.
constexpr std::array kReplacedByFile{
    "gradient_accumulation_steps", "gradient_clipping",      "zero_stage",
    "offload_optimizer_device",    "offload_param_device",   "offload_param_nvme_path",
    "offload_optimizer_nvme_path", "zero3_save_16bit_model",
};

/// Keys about how processes are started.
constexpr std::array kLauncherKeys{"deepspeed_hostfile", "deepspeed_exclusion_filter",
                                   "deepspeed_inclusion_filter", "deepspeed_multinode_launcher",
                                   "deepspeed_moe_layer_cls_names"};

Node scalar(std::string text, const std::string& where, Node::Kind kind = Node::Kind::Plain) {
  Node node;
  node.kind = kind;
  node.text = std::move(text);
  node.where = where;
  return node;
}

Node mapping(const std::string& where) {
  Node node;
  node.kind = Node::Kind::Mapping;
  node.where = where;
  return node;
}

void add(Node& parent, const char* key, Node value) {
  parent.entries.push_back({key, value.where, std::move(value)});
}

/// The value of the key as the config gets it: the file's word, or `otherwise`.
Node value_or(Fields& fields, const char* key, const char* otherwise) {
  const Node* node = fields.find(key);
  if (node == nullptr) return scalar(otherwise, fields.place(), Node::Kind::Quoted);
  if (!node->is_scalar()) fail(*node, fmt::format("{}: expected one word", fields.name_of(key)));
  const bool is_auto = node->text == "auto";
  return scalar(node->text, node->where, is_auto ? Node::Kind::Quoted : Node::Kind::Plain);
}

/// The DeepSpeed config that the plugin makes of the section when no file is named.
Node config_of(Fields& fields, const AcceleratePrecision& precision, Imported& imported) {
  Node zero = mapping(fields.place());
  add(zero, "stage",
      fields.find("zero_stage") ? value_or(fields, "zero_stage", "") : scalar("2", fields.place()));
  for (const char* what : {"offload_optimizer", "offload_param"}) {
    const std::string device = std::string(what) + "_device";
    const std::string path = std::string(what) + "_nvme_path";
    Node offload = mapping(fields.place());
    add(offload, "device", value_or(fields, device.c_str(), "none"));
    add(zero, what, std::move(offload));
    if (const Node* node = fields.find(path))
      warn(imported, node->where, fields.name_of(path),
           fmt::format("{}: {} is ignored: the launcher does not pass it on, 'none' results", path,
                       node->text));
  }
  if (const Node* save = fields.find("zero3_save_16bit_model"))
    add(zero, "stage3_gather_16bit_weights_on_model_save", *save);
  Node config = mapping(fields.place());
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu"})
    add(config, key, scalar("auto", fields.place(), Node::Kind::Quoted));
  add(config, "gradient_accumulation_steps",
      value_or(fields, "gradient_accumulation_steps", "auto"));
  add(config, "gradient_clipping", value_or(fields, "gradient_clipping", "auto"));
  add(config, "zero_optimization", std::move(zero));
  if (precision.dtype) {
    Node enabled = mapping(fields.place());
    add(enabled, "enabled", scalar("true", fields.place()));
    add(config, *precision.dtype == Dtype::Float16 ? "fp16" : "bf16", std::move(enabled));
  }
  return config;
}

std::string path_of(const Node& node, const std::string& source) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // a path that cannot be looked at fails when it is read
  const fs::path beside = fs::path(source).parent_path() / node.text;
  return fs::exists(beside, ignored) ? beside.string() : node.text;
}

/// Reads the file that deepspeed_config_file names.
void read_file(Fields& fields, const Node& file, const std::string& precision_where,
               const std::string& source, const ImportOptions& options, Imported& imported) {
  for (const char* key : kReplacedByFile)
    if (const Node* node = fields.find(key))
      fail(*node,
           fmt::format("{}: accelerate refuses it beside deepspeed_config_file: say it in {}",
                       fields.name_of(key), file.text));
  if (!precision_where.empty())
    throw InputError(
        fmt::format("{}: mixed_precision: accelerate refuses it beside "
                    "deepspeed_config_file: say it in {}",
                    precision_where, file.text));
  const std::string path = path_of(file, source);
  std::string text;
  try {
    text = read_text(path);
  } catch (const InputError& error) {
    fail(file, fmt::format("deepspeed_config.deepspeed_config_file: {}", error.what()));
  }
  const Node document = parse_json(text, path, JsonPlaces::Lines);
  if (Fields(document, "").find("zero_optimization") == nullptr)
    fail(document, "zero_optimization is missing, which accelerate wants in a DeepSpeed file");
  read_deepspeed(document, options, imported);
}

}  // namespace

void read_accelerate_deepspeed(const Node& section, const AcceleratePrecision& precision,
                               const std::string& precision_where, const std::string& source,
                               const ImportOptions& options, Imported& imported) {
  Fields fields(section, "deepspeed_config");
  for (const char* key : kLauncherKeys)
    fields.find_any(key);
  for (const char* key : kReplacedByFile)
    fields.find_any(key);
  const Node* init = fields.find("zero3_init_flag");
  if (const Node* file = fields.find("deepspeed_config_file"))
    read_file(fields, *file, precision_where, source, options, imported);
  else
    read_deepspeed(config_of(fields, precision, imported), options, imported);
  const bool stage3 = imported.job.strategy.sharding == Strategy::Zero3;
  const bool is_init = init != nullptr ? init->text == "true" : stage3;
  if (is_init && !stage3)
    warn(imported, init->where, fields.name_of("zero3_init_flag"),
         "zero3_init_flag: true is set to false: it is for zero_stage 3 only");
  imported.set("zero3_init", is_init && stage3);
  imported.set("load", is_init && stage3
                           ? "every rank keeps its shard as layers are made (zero.Init)"
                           : "every rank loads all weights");
  warn_unread(imported, fields, "accelerate 1.15.0");
}

}  // namespace shardplan::importing
