#include "planner/import/accelerate.h"

#include <fmt/format.h>

#include <array>

#include "planner/import/accelerate_values.h"
#include "planner/import/import_parts.h"
#include "plans/names.h"

namespace shardplan {
namespace importing {
namespace {

enum class Launch { No, MultiGpu, Fsdp, DeepSpeed, Elsewhere };
// DistributedType of accelerate 1.15.0, utils/dataclasses.py.
constexpr std::array kLaunchNames{
    EnumName{Launch::Fsdp, "FSDP"},
    EnumName{Launch::DeepSpeed, "DEEPSPEED"},
    EnumName{Launch::MultiGpu, "MULTI_GPU"},
    EnumName{Launch::No, "NO"},
    EnumName{Launch::Elsewhere, "MEGATRON_LM"},
    EnumName{Launch::Elsewhere, "XLA"},
    EnumName{Launch::Elsewhere, "MULTI_CPU"},
    EnumName{Launch::Elsewhere, "MULTI_NPU"},
    EnumName{Launch::Elsewhere, "MULTI_MLU"},
    EnumName{Launch::Elsewhere, "MULTI_SDAA"},
    EnumName{Launch::Elsewhere, "MULTI_MUSA"},
    EnumName{Launch::Elsewhere, "MULTI_XPU"},
    EnumName{Launch::Elsewhere, "MULTI_HPU"},
    EnumName{Launch::Elsewhere, "MULTI_NEURON"},
};

/// Keys of a file for one machine that say nothing about what is planned (ClusterConfig and
/// BaseConfig in commands/config/config_args.py).
constexpr std::array kOtherKeys{
    "machine_rank",
    "gpu_ids",
    "main_process_ip",
    "main_process_port",
    "rdzv_backend",
    "same_network",
    "main_training_function",
    "enable_cpu_affinity",
    "mpirun_config",
    "downcast_bf16",
    "tpu_name",
    "tpu_zone",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "command_file",
    "commands",
    "tpu_vm",
    "tpu_env",
    "use_cpu",
    "debug",
    "megatron_lm_config",
    "fp8_config",
    "dynamo_config",
    "dynamo_backend",
    "fsdp_config",
    "deepspeed_config",
    "parallelism_config",
};

Launch launch_of(Fields& root) {
  const Node* environment = root.find("compute_environment");
  if (environment != nullptr && environment->text != "LOCAL_MACHINE")
    fail(*environment, fmt::format("compute_environment: {} is not supported yet; supported: "
                                   "LOCAL_MACHINE",
                                   environment->text));
  const Node* type = root.find("distributed_type");
  if (type == nullptr)
    root.fail("distributed_type is missing; expected FSDP, DEEPSPEED, MULTI_GPU or NO");
  const std::string name = text_of(*type, "distributed_type");
  // An unquoted NO is a boolean to YAML 1.1, which no distributed_type equals.
  if (is_yaml_boolean(*type, false))
    fail(*type,
         fmt::format("distributed_type: {0} without quotes is the boolean false in YAML 1.1, "
                     "which accelerate refuses; write '{0}'",
                     name));
  const Launch launch =
      located(*type, [&] { return value_of(kLaunchNames, name, "distributed_type"); });
  if (launch == Launch::Elsewhere)
    fail(*type, fmt::format("distributed_type: {}{} is not supported yet; supported: FSDP, "
                            "DEEPSPEED, MULTI_GPU, NO",
                            name, name == "XLA" ? " (TPU)" : ""));
  return launch;
}

/// num_processes and num_machines; the options' numbers replace the file's.
void read_world(Fields& root, Launch launch, const ImportOptions& options, Imported& imported) {
  std::int64_t machines = 1;
  std::int64_t processes = launch == Launch::No ? 1 : -1;
  root.read("num_machines", machines, 1, kLargestWorld);
  root.read("num_processes", processes, -1, kLargestWorld);
  if (options.nodes) machines = *options.nodes;
  if (options.gpus) processes = *options.gpus;
  if (processes < 1)
    root.fail(
        "num_processes is missing: accelerate then wants it on its command line; give --gpus "
        "N here");
  if (processes < machines)
    root.fail(fmt::format("num_processes {} is less than num_machines {}", processes, machines));
  const std::int64_t per_node = processes / machines;
  if (const Node* node = root.find("num_processes"); node != nullptr && processes % machines != 0)
    warn(imported, node->where, "num_processes",
         fmt::format("num_processes: {} do not divide into num_machines: {}; accelerate starts {} "
                     "on each, {} in all",
                     processes, machines, per_node, per_node * machines));
  set_world(imported, static_cast<int>(per_node * machines), static_cast<int>(machines));
}

/// `precision_where`: the place of the key; empty when the file has none.
AcceleratePrecision read_precision(Fields& root, Imported& imported, std::string& precision_where) {
  const Node* node = root.find("mixed_precision");
  const Node* legacy = root.find("fp16");
  if (node == nullptr && legacy != nullptr && is_yaml_boolean(*legacy, true)) {
    precision_where = legacy->where;
    return {Dtype::Float16, "fp16 with loss scaling"};
  }
  if (node == nullptr) return {};
  precision_where = node->where;
  if (is_yaml_boolean(*node, false))
    fail(*node, fmt::format("mixed_precision: {0} without quotes is the boolean false in YAML 1.1, "
                            "on which accelerate fails; write '{0}'",
                            node->text));
  const std::string name = text_of(*node, "mixed_precision");
  const std::array<std::string, 4> known{"no", "fp16", "bf16", "fp8"};
  const std::string word = upper(name);
  if (word == "NO") return {};
  if (word == "FP16") return {Dtype::Float16, "fp16 with loss scaling"};
  if (word == "BF16") return {Dtype::BFloat16, "bf16"};
  if (word != "FP8") fail(*node, unknown_name("mixed_precision", name, known));
  warn(imported, node->where, "mixed_precision",
       "mixed_precision: fp8 keeps and reduces in bf16, matrix products run in fp8; the job says "
       "bf16 only");
  return {Dtype::BFloat16, "bf16 (matrix products in fp8)"};
}

/// Sizes of the mesh. Returns dp_shard_size, 0 when not given.
int read_parallelism(const Node* section, Launch launch, Imported& imported) {
  AccelerateSection sizes(section, "parallelism_config", "parallelism_config");
  std::int64_t shard = 0;
  std::int64_t replicate = 0;
  const auto read = [&](std::string_view key, std::int64_t& size) {
    if (const Node* node = sizes.find_any(key))
      size = integer_of(*node, sizes.fields().name_of(key), 1, kLargestWorld);
  };
  read("parallelism_config_dp_shard_size", shard);
  read("parallelism_config_dp_replicate_size", replicate);
  for (const char* key :
       {"parallelism_config_tp_size", "parallelism_config_cp_size", "parallelism_config_sp_size"}) {
    std::int64_t size = 1;
    read(key, size);
    if (size > 1)
      fail(*sizes.find_any(key),
           fmt::format("{}: {} is not supported yet; supported: 1", key, size));
  }
  if (section == nullptr) return 0;
  if (launch != Launch::Fsdp) {
    warn(imported, section->where, "parallelism_config",
         "parallelism_config is planned with distributed_type: FSDP only");
    return 0;
  }
  const std::int64_t world = imported.job.world_size();
  shard = std::max<std::int64_t>(shard, 1);
  replicate = std::max<std::int64_t>(replicate, 1);
  if (shard * replicate != world)
    fail(*section, fmt::format("parallelism_config: dp_replicate_size {} x dp_shard_size {} is not "
                               "the world of {}",
                               replicate, shard, world));
  return static_cast<int>(shard);
}

void read_dynamo(Fields& root, Imported& imported) {
  const Node* section = root.find("dynamo_config");
  const Node* backend = root.find("dynamo_backend");
  AccelerateSection dynamo(section, "dynamo_config", "dynamo");
  if (section != nullptr) backend = dynamo.find_any("dynamo_backend");
  if (backend == nullptr || !backend->is_scalar()) return;
  const std::string name = upper(backend->text);
  if (name != "NO" && name != "EAGER") imported.job.strategy.profile = Profile::TorchCompile;
}

/// Plain data parallelism, or one process.
void read_replicated(Launch launch, const AcceleratePrecision& precision, Imported& imported) {
  StrategyJob& strategy = imported.job.strategy;
  strategy.sharding = Strategy::Ddp;
  strategy.engine = Engine::Ddp;
  strategy.backward_prefetch = BackwardPrefetch::None;
  if (precision.dtype)  // autocast: parameters and reductions stay as they are
    strategy.mixed_precision = MixedPrecision{*precision.dtype, Dtype::Float32, Dtype::Float32};
  imported.set("strategy", launch == Launch::No ? "none: one process" : "DDP (NO_SHARD)");
  imported.set("compute_dtype",
               precision.dtype ? precision.text + " by autocast" : std::string("fp32 (as loaded)"));
  imported.set("reduce_dtype", "fp32 (the gradients' own)");
  imported.set("stored_param_dtype", "as loaded, fp32 unless the script loads another dtype");
  imported.set("offload", FactValue());
  imported.set("checkpoint", "whole, by rank 0");
  imported.set("load", "every rank loads all weights");
  set_shard_group(imported, 1);
  set_state_bytes(imported, {.replicated = 16});
}

/// Sections of other launches, which accelerate passes over.
void warn_of_other_sections(Fields& root, Launch launch, Imported& imported) {
  const auto pass_over = [&](const char* key, Launch reader, const char* type) {
    const Node* section = root.find(key);
    if (section == nullptr || launch == reader || section->entries.empty()) return;
    warn(imported, section->where, key,
         fmt::format("{} is ignored: it needs distributed_type: {}", key, type));
  };
  pass_over("fsdp_config", Launch::Fsdp, "FSDP");
  pass_over("deepspeed_config", Launch::DeepSpeed, "DEEPSPEED");
  pass_over("megatron_lm_config", Launch::Elsewhere, "MEGATRON_LM");
  const Node* cpu = root.find("use_cpu");
  if (cpu != nullptr && is_yaml_boolean(*cpu, true) && launch != Launch::No)
    warn(imported, cpu->where, "use_cpu", "use_cpu: true is ignored with several GPUs");
}

constexpr const char* tool_name(Launch launch) {
  switch (launch) {
    case Launch::Fsdp: return "accelerate FSDP yaml";
    case Launch::DeepSpeed: return "accelerate DeepSpeed yaml";
    case Launch::MultiGpu: return "accelerate MULTI_GPU yaml";
    default: return "accelerate yaml";
  }
}

Imported read_launch_file(std::string_view yaml, const std::string& source,
                          const ImportOptions& options) {
  const Node document = parse_yaml(yaml, source);
  Fields root(document, "");
  Imported imported;
  imported.job = empty_job(options);
  const Launch launch = launch_of(root);
  imported.tool = tool_name(launch);
  imported.set("kind", imported.tool);
  for (const char* key : kOtherKeys)
    root.find_any(key);
  read_world(root, launch, options, imported);
  std::string precision_where;
  const AcceleratePrecision precision = read_precision(root, imported, precision_where);
  root.refuse_unknown();  // as accelerate does
  const int shard_group = read_parallelism(root.find("parallelism_config"), launch, imported);
  Node absent;
  absent.where = source;
  const auto section = [&](const char* key) {
    const Node* node = root.find(key);
    return node != nullptr ? node : &absent;
  };
  switch (launch) {
    case Launch::Fsdp:
      read_accelerate_fsdp(*section("fsdp_config"), precision, shard_group, imported);
      break;
    case Launch::DeepSpeed:
      read_accelerate_deepspeed(*section("deepspeed_config"), precision, precision_where, source,
                                options, imported);
      break;
    default: read_replicated(launch, precision, imported); break;
  }
  if (!imported.job.strategy.profile) imported.job.strategy.profile = Profile::TorchEager;
  read_dynamo(root, imported);
  warn_of_other_sections(root, launch, imported);
  return imported;
}

}  // namespace
}  // namespace importing

Imported import_accelerate(std::string_view yaml, const std::string& source,
                           const ImportOptions& options) {
  return importing::read_launch_file(yaml, source, options);
}

}  // namespace shardplan
