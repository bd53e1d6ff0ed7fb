#include "tools/published_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "planner/model.h"
#include "planner/passes/recomputation.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "plans/job_reader.h"
#include "plans/presets.h"
#include "plans/setting.h"
#include "tools/numbers.h"

namespace shardplan {
namespace {

using json = nlohmann::json;

[[noreturn]] void cannot(std::string_view why) { throw NotExpressed(std::string(why)); }

/// A whole number that the row must state.
std::int64_t count_in(const CsvRow& row, const std::string& column) {
  const double number = number_of(row, column);
  if (number < 1) cannot(fmt::format("{} is not stated", column));
  if (number != std::floor(number)) cannot(fmt::format("{} is no whole number", column));
  return static_cast<std::int64_t>(number);
}

std::int64_t count_in(const CsvRow& row, const std::string& column, std::int64_t otherwise) {
  return number_of(row, column) < 1 ? otherwise : count_in(row, column);
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// ---- the model

/// Hugging Face's model_type for what a table calls the family.
struct FamilyName {
  std::string_view begins;
  std::string_view model_type;
};
constexpr std::array kFamilies{
    FamilyName{"MPT", "gpt2"},       FamilyName{"GPT", "gpt2"},        FamilyName{"Llama", "llama"},
    FamilyName{"InternLM", "llama"}, FamilyName{"SmolLM3", "llama"},   FamilyName{"Qwen2", "qwen2"},
    FamilyName{"Qwen3", "qwen3"},    FamilyName{"Mistral", "mistral"},
};

std::string_view model_type_of(const CsvRow& row) {
  const std::string family = cell_of(row, "model_family");
  for (const FamilyName& name : kFamilies)
    if (family.starts_with(name.begins)) return name.model_type;
  cannot(fmt::format("model family '{}' is not known", family));
}

/// Llama's rule: two thirds of four widths, rounded up to a multiple of 256.
std::int64_t llama_intermediate(std::int64_t width) { return (8 * width / 3 + 255) / 256 * 256; }

/// Blocks as GPT-2's: learned positions and biases everywhere, as MPT's; GELU by one kernel.
json gpt_config(const CsvRow& row) {
  const std::int64_t width = count_in(row, "d_model");
  return {{"n_embd", width},
          {"n_layer", count_in(row, "layers")},
          {"n_head", count_in(row, "heads")},
          {"n_inner", count_in(row, "ffn", 4 * width)},
          {"n_positions", count_in(row, "seq_len")},
          {"activation_function", "gelu"}};
}

json llama_config(const CsvRow& row) {
  const std::int64_t width = count_in(row, "d_model");
  const std::int64_t heads = count_in(row, "heads");
  return {{"hidden_size", width},
          {"num_hidden_layers", count_in(row, "layers")},
          {"num_attention_heads", heads},
          {"num_key_value_heads", count_in(row, "kv_heads", heads)},
          {"intermediate_size", count_in(row, "ffn", llama_intermediate(width))},
          {"max_position_embeddings", count_in(row, "seq_len")}};
}

/// Rows that name a model of the presets need not state its dimensions.
ModelGraph named_model(const CsvRow& row) {
  const std::string name = cell_of(row, "model_name");
  if (name.empty()) cannot("layers is not stated");
  try {
    ModelJob model;
    model.preset = find_preset(read_presets(data_folder()), name).key;
    return build_model(model);
  } catch (const InputError&) {
    cannot(fmt::format("dimensions are not stated, and no preset is called '{}'", name));
  }
}

ModelGraph model_of(const CsvRow& row) {
  if (number_of(row, "layers") < 1) return named_model(row);
  const std::string_view type = model_type_of(row);
  json config = type == "gpt2" ? gpt_config(row) : llama_config(row);
  config["model_type"] = type;
  config["vocab_size"] = count_in(row, "vocab");
  config["tie_word_embeddings"] = cell_of(row, "tied_embeddings").starts_with("yes");
  return model_from_config(config.dump(), cell_of(row, "id"));
}

// ---- the cluster

/// The catalogue's GPU for the table's key. Tables that leave the form factor or the capacity open
/// mean the usual one.
GpuSpec gpu_of(const CsvRow& row, const Hardware& hardware, std::vector<std::string>& assumed) {
  std::string key = cell_of(row, "gpu_key");
  constexpr std::string_view kOpen = "-unspecified";
  const std::size_t open = key.find(kOpen);
  if (open != std::string::npos) {
    key.erase(open, kOpen.size());
    if (!contains(key, "-")) key += "-80";
    key.insert(key.rfind('-'), "-sxm");
    assumed.emplace_back("GPU form factor");
  }
  try {
    return hardware.gpu(key);
  } catch (const InputError&) {
    cannot(fmt::format("GPU '{}' is not in the catalogue", key));
  }
}

/// A whole number that a text has before a place, and where it begins.
struct NumberBefore {
  double number = 0;  // 0: there is none
  std::size_t begin = 0;
};
NumberBefore number_before(const std::string& text, std::size_t end) {
  NumberBefore before;
  before.begin = text.find_last_not_of("0123456789", end - 1) + 1;
  std::from_chars(text.data() + before.begin, text.data() + end, before.number);
  return before;
}

/// Bytes a second of a node's network cards: "400 Gb/s", "4 x 100 Gb RoCE per node", "RDMA 400 Gb/s
/// per GPU"; nothing when there is no such figure.
std::optional<double> inter_node_rate(const std::string& text, int gpus_per_node) {
  const std::size_t unit = text.find(" Gb");
  if (unit == std::string::npos || unit == 0) return std::nullopt;
  const auto [card, begin] = number_before(text, unit);
  double gigabits = card;
  const std::size_t times = text.rfind(" x ", begin);
  if (times != std::string::npos && times > 0 && times + 3 == begin)
    gigabits *= number_before(text, times).number;
  if (contains(text, "per GPU")) gigabits *= gpus_per_node;
  return gigabits > 0 ? std::optional(gigabits * 1e9 / 8) : std::nullopt;
}

void set_cluster(const CsvRow& row, const Hardware& hardware, PublishedJob& published) {
  ClusterJob& cluster = published.job.cluster;
  cluster.gpu = gpu_of(row, hardware, published.assumed);
  cluster.network = hardware.network_of(cluster.gpu);
  const auto world = static_cast<int>(count_in(row, "world_size"));
  const std::int64_t stated = count_in(row, "gpus_per_node", cluster.gpu.max_gpus_per_node);
  // A domain of NVLink that spans nodes counts as one.
  const auto node = std::max<std::int64_t>(stated, cluster.gpu.max_gpus_per_node);
  cluster.gpus_per_node = static_cast<int>(std::min<std::int64_t>(world, node));
  if (world % cluster.gpus_per_node != 0) cannot("world_size does not divide into nodes");
  cluster.nodes = world / cluster.gpus_per_node;
  const auto rate = inter_node_rate(cell_of(row, "interconnect_inter"), cluster.gpus_per_node);
  if (rate) cluster.network.inter_node_bytes_per_s = *rate;
  if (!rate && cluster.nodes > 1) published.assumed.emplace_back("network between nodes");
}

// ---- strategy and training

Strategy sharding_of(const CsvRow& row, std::vector<std::string>& assumed) {
  const std::string strategy = cell_of(row, "strategy_norm");
  if (strategy == "NO_SHARD" || strategy == "single-GPU") return Strategy::Ddp;
  if (strategy == "FULL_SHARD")
    return number_of(row, "dp_replicate") > 1 ? Strategy::HybridShard : Strategy::FullShard;
  if (strategy == "SHARD_GRAD_OP") return Strategy::ShardGradOp;
  if (number_of(row, "world_size") == 1) return Strategy::Ddp;
  if (strategy == "ZERO1") return Strategy::Zero1;
  if (strategy == "ZERO1+sharded-weights") return Strategy::Zero3;
  // Megatron-LM's data parallelism, whose optimizer is usually the distributed one.
  if (strategy.empty() || contains(strategy, "Megatron DP")) {
    assumed.emplace_back(kUnknownStrategy);
    return Strategy::Zero1;
  }
  cannot(fmt::format("strategy {} is not planned", strategy));
}

/// What a name like "selective-op(ffn+norm)" computes again, of the parts that the framework knows.
std::string recomputed_parts(const std::string& name, const Framework& framework) {
  const std::size_t open = name.find('(');
  const std::size_t close = name.find(')');
  if (open == std::string::npos || close == std::string::npos) return "";
  std::vector<std::string> operators;
  std::vector<std::string> modules;
  std::size_t at = open + 1;
  while (at < close) {
    const std::size_t end = std::min(name.find('+', at), close);
    const std::string part = name.substr(at, end - at);
    at = end + 1;
    if (const auto op = framework.recomputed_operators.find(part);
        op != framework.recomputed_operators.end())
      operators.push_back(op->second);
    else if (const auto module = framework.recomputed_modules.find(part);
             module != framework.recomputed_modules.end())
      modules.push_back(module->second);
    else
      return "";
  }
  return fmt::format("{{selective: [{}], modules: [{}]}}", fmt::join(operators, ", "),
                     fmt::join(modules, ", "));
}

std::string_view matmul_dtype_of(const CsvRow& row) {
  const std::string dtype = cell_of(row, "dtype_norm");
  if (dtype.empty() || dtype == "bf16") return "none";
  if (dtype == "fp8" || dtype == "mxfp8") return "float8";
  if (dtype == "nvfp4") return "nvfp4";
  cannot(fmt::format("products in {}", dtype));
}

std::string checkpointing_of(const CsvRow& row, const Framework& framework,
                             std::vector<std::string>& assumed) {
  const std::string mode = cell_of(row, "ac_norm");
  if (mode == "none" || mode == "full") return mode;
  if (mode == "selective-layer") {
    assumed.emplace_back("share of checkpointed blocks");
    return "{every: 2}";
  }
  if (mode == "selective-op") {
    const std::string parts = recomputed_parts(cell_of(row, "activation_checkpointing"), framework);
    if (!parts.empty()) return parts;
    if (framework.selective.empty()) cannot("what selective checkpointing keeps is not known");
    const bool float8 = matmul_dtype_of(row) == "float8";
    return float8 && !framework.selective_float8.empty() ? framework.selective_float8
                                                         : framework.selective;
  }
  assumed.emplace_back(framework.checkpointing.empty() ? kUnknownCheckpointing
                                                       : "the framework's usual checkpointing");
  return framework.checkpointing.empty() ? "none" : framework.checkpointing;
}

/// Adapters on all linear layers of a block, as the frameworks' recipes have them.
LoraJob lora_of(const CsvRow& row, std::vector<std::string>& assumed) {
  LoraJob lora;
  const std::string task = cell_of(row, "task");
  const std::size_t rank = task.find(" r");
  if (rank == std::string::npos ||
      std::from_chars(task.data() + rank + 2, task.data() + task.size(), lora.rank).ec !=
          std::errc())
    assumed.emplace_back("LoRA rank");
  lora.targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  return lora;
}

std::int64_t accumulation_of(const CsvRow& row, const Framework& framework,
                             std::vector<std::string>& assumed) {
  if (number_of(row, "grad_accum") >= 1) return count_in(row, "grad_accum");
  const double sequences = number_of(row, "micro_batch_per_gpu") * number_of(row, "world_size");
  const double steps = number_of(row, "global_batch") / sequences;
  if (steps >= 1) return std::llround(steps);
  assumed.emplace_back("gradient accumulation");
  return std::max<std::int64_t>(1, std::llround(framework.global_batch / sequences));
}

bool is_compiled(const CsvRow& row) { return cell_of(row, "compile").starts_with("yes"); }

/// Adds what the row's offload to the host asks for. Only our own engine does, and of LLM.Q's parts
/// the optimizer's states; the others, which move beside compute, stay on the device.
void add_offload(const CsvRow& row, std::vector<std::string>& settings,
                 std::vector<std::string>& assumed) {
  const std::string offload = cell_of(row, "cpu_offload");
  if (offload.empty() || offload == "no") return;
  const bool native = std::ranges::find(settings, "strategy.engine=native") != settings.end();
  if (!native) cannot("offload to the host");
  if (contains(offload, "opt-m")) settings.emplace_back("strategy.cpu_offload.optimizer=true");
  for (const char* part : {"residual", "gradients", "quants", "master"})
    if (contains(offload, part)) {
      assumed.emplace_back(kPartsOnDevice);
      return;
    }
}

std::vector<Setting> settings_of(const CsvRow& row, const Framework& framework,
                                 std::vector<std::string>& assumed) {
  const FrameworkVersion& version = framework.at(cell_of(row, "measured_date"));
  std::vector<std::string> texts{"strategy.mixed_precision={param: bfloat16, reduce: bfloat16}"};
  const auto add = [&](const std::vector<std::string>& more) {
    texts.insert(texts.end(), more.begin(), more.end());
  };
  add(version.settings);
  // Composer's FSDP mixed_precision mode DEFAULT; PURE reduces in bfloat16 too.
  if (contains(cell_of(row, "other_flags"), "mode=DEFAULT"))
    texts.emplace_back("strategy.mixed_precision.reduce=float32");
  if (is_compiled(row)) add(version.compiled);
  add_offload(row, texts, assumed);
  texts.push_back(fmt::format("training.matmul_dtype={}", matmul_dtype_of(row)));
  texts.push_back("training.activation_checkpointing=" + checkpointing_of(row, framework, assumed));
  if (contains(cell_of(row, "attention_impl"), "no flash")) assumed.emplace_back(kFusedAttention);
  texts.push_back(fmt::format("training.sequence_length={}", count_in(row, "seq_len")));
  texts.push_back(fmt::format("training.micro_batch={}", count_in(row, "micro_batch_per_gpu")));
  texts.push_back(fmt::format("training.gradient_accumulation.steps={}",
                              accumulation_of(row, framework, assumed)));
  return {texts.begin(), texts.end()};
}

/// Makes FSDP's units of the blocks and of what else the framework wraps.
void add_units(const std::vector<std::string>& units, PublishedJob& published) {
  WrapPolicy& wrap = published.job.strategy.wrap;
  wrap.kind = WrapPolicy::Kind::Modules;
  wrap.names = block_modules(published.model);
  wrap.names.insert(wrap.names.end(), units.begin(), units.end());
}

/// Throws unless the row is of a kind that jobs describe.
void expect_data_parallel(const CsvRow& row) {
  if (cell_of(row, "outcome") != "ok") cannot("the run did not end well");
  for (const char* degree : {"tp", "pp", "cp", "ep"})
    if (number_of(row, degree) > 1) cannot(fmt::format("{} > 1: not data-parallel alone", degree));
  if (cell_of(row, "pure_data_parallel") != "yes") cannot("not data-parallel alone");
  if (contains(cell_of(row, "family"), "MoE")) cannot("mixture of experts");
  if (contains(cell_of(row, "task"), "QLoRA")) cannot("QLoRA: weights of 4 bits");
}

}  // namespace

std::string cell_of(const CsvRow& row, const std::string& column) {
  const auto cell = row.find(column);
  return cell == row.end() ? "" : cell->second;
}

double number_of(const CsvRow& row, const std::string& column) {
  return number_from(cell_of(row, column)).value_or(0);
}

double stated_or_derived(const CsvRow& row, const std::string& column) {
  const double stated = number_of(row, column);
  return stated > 0 ? stated : number_of(row, "derived_" + column);
}

bool PublishedPlan::leaves_open(std::string_view what) const {
  return std::ranges::find(assumed, what) != assumed.end();
}

bool PublishedPlan::tells_constants() const {
  const Job& job = plan.job;
  return !job.model.lora && job.training.matmul_dtype != MatmulDtype::NvFp4 &&
         job.strategy.cpu_offload == CpuOffload{} && !leaves_open(kPartsOnDevice) &&
         !leaves_open(kUnknownCheckpointing) && !leaves_open(kUnknownStrategy) &&
         !leaves_open(kFusedAttention);
}

PublishedJob published_job(const CsvRow& row, const std::vector<Framework>& frameworks,
                           const Hardware& hardware) {
  expect_data_parallel(row);
  const Framework* framework = find_framework(frameworks, cell_of(row, "framework"));
  if (framework == nullptr)
    cannot(fmt::format("framework '{}' is not known", cell_of(row, "framework")));
  PublishedJob published;
  try {
    const std::vector<Setting> settings = settings_of(row, *framework, published.assumed);
    published.job = parse_job("", cell_of(row, "id"), hardware, settings, ModelNeed::Optional);
    set_sharding(published.job, sharding_of(row, published.assumed));
    set_cluster(row, hardware, published);
    if (contains(cell_of(row, "task"), "LoRA"))
      published.job.model.lora = lora_of(row, published.assumed);
    published.model = adapted(model_of(row), published.job.model);
    const FrameworkVersion& version = framework->at(cell_of(row, "measured_date"));
    published.process = version.process;
    if (!version.units.empty()) add_units(version.units, published);
  } catch (const InputError& error) {
    cannot(error.what());
  }
  return published;
}

PublishedPlan published_plan(const CsvRow& row, const std::vector<Framework>& frameworks,
                             const Hardware& hardware) {
  PublishedJob published = published_job(row, frameworks, hardware);
  try {
    return {make_plan(published.job, published.model, published.process),
            std::move(published.assumed)};
  } catch (const InputError& error) {
    cannot(error.what());
  }
}

}  // namespace shardplan
