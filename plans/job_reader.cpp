#include "plans/job_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>

#include "plans/document.h"
#include "plans/job_document.h"
#include "plans/presets.h"
#include "plans/setting.h"

namespace shardplan {
namespace {

constexpr int kMostGpusPerNode = 65'536;
constexpr int kMostSteps = 10'000'000;  // a run keeps some 100 B for each
constexpr int kMostMicroSteps = 1 << 20;

[[noreturn]] void fail_unsupported(const Node& node, const std::string& what,
                                   std::string_view supported) {
  fail(node, fmt::format("{} is not supported yet; supported: {}", what, supported));
}

/// Accepts a field of the contract only when its value asks for what is built: null, nothing, or
/// one of `supported`.
void supports_only(Fields& fields, std::string_view key,
                   std::initializer_list<std::string_view> supported = {}) {
  const Node* node = fields.find(key);
  if (node == nullptr || (node->kind == Node::Kind::Mapping && node->entries.empty())) return;
  const auto is_text = [&](std::string_view text) { return node->text == text; };
  if (node->is_scalar() && std::ranges::any_of(supported, is_text)) return;
  const std::string value = node->is_scalar() ? fmt::format(": {}", node->text) : "";
  fail_unsupported(*node, fields.name_of(key) + value,
                   supported.size() == 0 ? "null" : fmt::format("{}", fmt::join(supported, ", ")));
}

void read_optional(Fields& fields, std::string_view key, std::optional<double>& value,
                   double least) {
  if (const Node* node = fields.find(key))
    value = real_of(*node, fields.name_of(key), least, kNoLimit);
}

Dtype read_float_dtype(Fields& fields, std::string_view key, Dtype otherwise) {
  Dtype dtype = otherwise;
  read_name(fields, key, dtype, dtype_from);
  if (dtype != Dtype::Float32 && dtype != Dtype::BFloat16 && dtype != Dtype::Float16)
    fail(*fields.find(key), fmt::format("{}: expected float32, bfloat16 or float16, found {}",
                                        fields.name_of(key), to_string(dtype)));
  return dtype;
}

LoraJob read_lora(Fields fields) {
  LoraJob lora;
  fields.read("rank", lora.rank, 1, 1 << 20);
  fields.read("alpha", lora.alpha, kPositive);
  if (const Node* targets = fields.find("targets"))
    lora.targets = texts_of(*targets, fields.name_of("targets"));
  if (lora.targets.empty()) fields.fail("model.lora: needs targets: [..]");
  lora.dtype = read_float_dtype(fields, "dtype", lora.dtype);
  supports_only(fields, "base_dtype");
  fields.refuse_unknown();
  return lora;
}

/// With a catalogue, the preset's key in it replaces whatever spelling the job has.
ModelJob read_model(Fields fields, const Hardware* hardware, ModelNeed need) {
  ModelJob model;
  fields.read("preset", model.preset);
  fields.read("hf_config", model.hf_config);
  fields.read("graph", model.graph);
  fields.read("as_family", model.as_family);
  const int given = !model.preset.empty() + !model.hf_config.empty() + !model.graph.empty();
  if (given > 1 || (given == 0 && need == ModelNeed::Required))
    fields.fail("model: expected exactly one of preset, hf_config and graph");
  if (!model.as_family.empty() && model.hf_config.empty())
    fail(*fields.find("as_family"), "model.as_family: is for hf_config, and there is none");
  if (const Node* preset = fields.find("preset"); preset != nullptr && hardware != nullptr)
    model.preset = located(
        *preset, [&] { return find_preset(read_presets(data_folder()), model.preset).key; });
  model.dtype = read_float_dtype(fields, "dtype", model.dtype);
  if (const Node* tie = fields.find("tie_word_embeddings"))
    model.tie_word_embeddings = boolean_of(*tie, fields.name_of("tie_word_embeddings"));
  if (const Node* trainable = fields.find("trainable"))
    model.trainable = texts_of(*trainable, fields.name_of("trainable"));
  if (fields.find("lora") != nullptr) model.lora = read_lora(fields.section("lora"));
  fields.refuse_unknown();
  return model;
}

GpuSpec read_gpu(Fields& fields, const Hardware* hardware) {
  const Node* node = fields.find("gpu");
  if (node != nullptr && node->kind == Node::Kind::Mapping)
    return gpu_from(*node, "custom", "cluster.gpu");
  if (hardware == nullptr) fields.fail("cluster.gpu: expected a mapping");
  if (node == nullptr) return hardware->gpu("h100-sxm-80");
  const std::string name = text_of(*node, "cluster.gpu");
  return located(*node, [&] { return hardware->gpu(name); });
}

/// The catalogue's links; none without a catalogue, so that the job must give them.
NetworkSpec usual_network(Fields& fields, const GpuSpec& gpu, const Hardware* hardware) {
  if (hardware == nullptr) return {};
  const Node* node = fields.find("gpu");
  if (node == nullptr) return hardware->network_of(gpu);
  return located(*node, [&] { return hardware->network_of(gpu); });
}

NetworkSpec read_network(Fields fields, NetworkSpec network) {
  read_name(fields, "intra_node_link", network.intra_node_link, node_link_from);
  fields.read("intra_node_bytes_per_s", network.intra_node_bytes_per_s, kLeastRate, kMostRate);
  fields.read("intra_node_efficiency", network.intra_node_efficiency, kPositive, 1);
  read_links(fields, network);
  if (network.intra_node_bytes_per_s == 0 || network.inter_node_bytes_per_s == 0)
    fields.fail("cluster.network: both rates are needed");
  fields.refuse_unknown();
  return network;
}

ClusterJob read_cluster(Fields& root, const Hardware* hardware) {
  ClusterJob cluster;
  const Node* node = root.find("cluster");
  if (node != nullptr && node->is_scalar() && node->text == "auto" && hardware != nullptr) {
    // What the launcher gives; `run` sets the number of ranks.
    cluster.gpu = hardware->gpu("cpu");
    cluster.gpus_per_node = 1;
    cluster.network = hardware->network_of(cluster.gpu);
    return cluster;
  }
  Fields fields = root.section("cluster");
  cluster.gpu = read_gpu(fields, hardware);
  fields.read("gpus_per_node", cluster.gpus_per_node, 1, kMostGpusPerNode);
  fields.read("nodes", cluster.nodes, 1, kLargestWorld);
  if (std::int64_t{cluster.gpus_per_node} * cluster.nodes > kLargestWorld)
    fields.fail(fmt::format("cluster: more than {} GPUs", kLargestWorld));
  cluster.network =
      read_network(fields.section("network"), usual_network(fields, cluster.gpu, hardware));
  read_optional(fields, "price_per_gpu_hour", cluster.price_per_gpu_hour, 0);
  fields.refuse_unknown();
  return cluster;
}

WrapPolicy read_wrap(Fields fields) {
  WrapPolicy wrap;
  read_name(fields, "policy", wrap.kind, wrap_policy_from);
  switch (wrap.kind) {
    case WrapPolicy::Kind::Transformer:
      if (const Node* classes = fields.find("layer_classes"))
        wrap.layer_classes = texts_of(*classes, fields.name_of("layer_classes"));
      break;
    case WrapPolicy::Kind::Size:
      fields.read("min_params", wrap.min_params, 1, std::int64_t{1} << 53);
      break;
    case WrapPolicy::Kind::Modules:
      if (const Node* names = fields.find("names"))
        wrap.names = texts_of(*names, fields.name_of("names"));
      if (wrap.names.empty()) fields.fail("strategy.wrap: modules needs names: [..]");
      break;
    case WrapPolicy::Kind::None: break;
  }
  fields.refuse_unknown();
  return wrap;
}

void read_prefetch(Fields& fields, StrategyJob& strategy) {
  const Node* backward = fields.find("backward_prefetch");
  if (backward != nullptr && !backward->text.empty() && std::isdigit(backward->text.front()) != 0) {
    fields.read("backward_prefetch", strategy.backward_prefetch_units, 1, 1024);
  } else if (fields.find_any("backward_prefetch") != nullptr) {
    strategy.backward_prefetch = BackwardPrefetch::None;  // what null means here
    read_name(fields, "backward_prefetch", strategy.backward_prefetch, backward_prefetch_from);
  }
  const Node* forward = fields.find("forward_prefetch");
  if (forward != nullptr && (forward->text == "true" || forward->text == "false"))
    strategy.forward_prefetch = forward->text == "true" ? 1 : 0;
  else
    fields.read("forward_prefetch", strategy.forward_prefetch, 0, 1024);
}

/// What is not said follows the parameters' dtype, as in FSDP; buffers stay as they are, but for
/// DeepSpeed, which casts the whole module.
MixedPrecision read_mixed_precision(Fields fields, Engine engine) {
  MixedPrecision precision;
  precision.param = read_float_dtype(fields, "param", precision.param);
  precision.reduce = read_float_dtype(fields, "reduce", precision.param);
  const bool casts = engine == Engine::DeepSpeed;
  precision.buffer = read_float_dtype(fields, "buffer", casts ? precision.param : precision.buffer);
  fields.refuse_unknown();
  return precision;
}

/// FSDP2's argument: true, false, or the ranks of the smaller group.
ReshardAfterForward read_reshard(Fields& fields, const Node& node) {
  if (node.text == "true" || node.text == "false") return {.reshard = node.text == "true"};
  ReshardAfterForward reshard;
  fields.read("reshard_after_forward", reshard.ranks, 2, kLargestWorld);
  return reshard;
}

/// Fields that only the PyTorch and DeepSpeed engines look at.
void read_other_engines(Fields& fields, StrategyJob& strategy) {
  fields.read("framework_version", strategy.framework_version);
  fields.read("use_orig_params", strategy.use_orig_params);
  Fields offload = fields.section("cpu_offload");
  offload.read("params", strategy.cpu_offload.params);
  offload.read("optimizer", strategy.cpu_offload.optimizer);
  offload.read("activations", strategy.cpu_offload.activations);
  offload.refuse_unknown();
  Fields allocator = fields.section("allocator");
  allocator.read("expandable_segments", strategy.expandable_segments);
  allocator.refuse_unknown();
  Fields deepspeed = fields.section("deepspeed");
  if (strategy.engine == Engine::DeepSpeed) strategy.deepspeed.emplace();
  DeepSpeedOptions options;
  DeepSpeedOptions& read = strategy.deepspeed ? *strategy.deepspeed : options;
  read_zero_options(deepspeed, read);
  if (deepspeed.find("grad_accum_dtype") != nullptr)
    read.grad_accum_dtype = read_float_dtype(deepspeed, "grad_accum_dtype", Dtype::Float32);
  deepspeed.refuse_unknown();
  if (!strategy.deepspeed && options != DeepSpeedOptions{})
    deepspeed.fail(fmt::format("strategy.deepspeed: the engine is {}, not deepspeed",
                               to_string(strategy.engine.value_or(Engine::Native))));
}

Engine default_engine(Strategy sharding, const GpuSpec& gpu, JobUse use) {
  if (use == JobUse::Run || gpu.is_cpu()) return Engine::Native;
  return engine_for(sharding, Engine::Fsdp2);
}

void read_engine(Fields& fields, const GpuSpec& gpu, JobUse use, StrategyJob& strategy) {
  Engine engine = default_engine(strategy.sharding, gpu, use);
  read_name(fields, "engine", engine, engine_from);
  strategy.engine = engine;
  Profile profile = engine != Engine::Native ? Profile::TorchEager
                    : gpu.is_cpu()           ? Profile::CpuOneDnn
                                             : Profile::Cuda;
  read_name(fields, "profile", profile, profile_from);
  strategy.profile = profile;
}

StrategyJob read_strategy(Fields fields, const GpuSpec& gpu, JobUse use) {
  StrategyJob strategy;
  read_name(fields, "sharding", strategy.sharding, strategy_from);
  read_engine(fields, gpu, use, strategy);
  if (strategy.engine == Engine::DeepSpeed && fields.find("sharding") == nullptr)
    strategy.sharding = Strategy::Zero3;
  if (fields.find("layout") != nullptr) {
    strategy.layout = Layout::Flat;
    read_name(fields, "layout", *strategy.layout, layout_from);
  }
  if (fields.find("shard_group") != nullptr) {
    strategy.shard_group = 1;
    fields.read("shard_group", *strategy.shard_group, 1, kLargestWorld);
  }
  strategy.wrap = read_wrap(fields.section("wrap"));
  if (fields.find("mixed_precision") != nullptr)
    strategy.mixed_precision =
        read_mixed_precision(fields.section("mixed_precision"), *strategy.engine);
  if (const Node* reshard = fields.find("reshard_after_forward"))
    strategy.reshard_after_forward = read_reshard(fields, *reshard);
  read_prefetch(fields, strategy);
  fields.read("limit_all_gathers", strategy.limit_all_gathers);
  Fields ddp = fields.section("ddp");
  ddp.read("bucket_cap_mb", strategy.ddp.bucket_cap_mb, kPositive, 1e6);
  ddp.read("gradient_as_bucket_view", strategy.ddp.gradient_as_bucket_view);
  ddp.refuse_unknown();
  read_other_engines(fields, strategy);
  fields.refuse_unknown();
  return strategy;
}

OptimizerJob read_optimizer(Fields fields) {
  OptimizerJob optimizer;
  const double below_one = std::nextafter(1.0, 0.0);
  read_name(fields, "name", optimizer.name, optimizer_from);
  fields.read("lr", optimizer.lr, 0);
  if (const Node* betas = fields.find("betas")) {
    const std::string name = fields.name_of("betas");
    if (betas->items.size() != 2) fail(*betas, name + ": expected a list of two numbers");
    optimizer.beta1 = real_of(betas->items[0], name, 0, below_one);
    optimizer.beta2 = real_of(betas->items[1], name, 0, below_one);
  }
  fields.read("eps", optimizer.eps, 0);
  fields.read("weight_decay", optimizer.weight_decay, 0);
  fields.read("momentum", optimizer.momentum, 0, below_one);
  read_name(fields, "decay", optimizer.decay, decay_from);
  optimizer.state_dtype = read_float_dtype(fields, "state_dtype", optimizer.state_dtype);
  read_name(fields, "implementation", optimizer.implementation, implementation_from);
  fields.refuse_unknown();
  return optimizer;
}

ScheduleJob read_schedule(Fields fields) {
  ScheduleJob schedule;
  read_name(fields, "name", schedule.name, schedule_from);
  fields.read("warmup_steps", schedule.warmup_steps, 0, kMostSteps);
  fields.read("min_lr_ratio", schedule.min_lr_ratio, 0, 1);
  fields.refuse_unknown();
  return schedule;
}

/// A list of operator kinds; empty when it is absent.
std::vector<OperatorKind> read_operators(Fields& fields, std::string_view key) {
  std::vector<OperatorKind> kinds;
  const Node* operators = fields.find(key);
  if (operators == nullptr) return kinds;
  for (const std::string& name : texts_of(*operators, fields.name_of(key)))
    kinds.push_back(located(*operators, [&] { return operator_kind_from(name); }));
  return kinds;
}

/// none, full, {every: k} or {selective: [operator kinds], every_second: [operator kinds],
/// modules: [names]}, of which one is enough.
ActivationCheckpointing read_checkpointing(Fields& fields) {
  using Kind = ActivationCheckpointing::Kind;
  constexpr std::string_view kField = "activation_checkpointing";
  const Node* node = fields.find(kField);
  if (node == nullptr) return {};
  if (node->is_scalar()) {
    if (node->text == "none") return {};
    if (node->text == "full") return {.kind = Kind::Full, .operators = {}};
    fail(*node, fmt::format("{}: expected none, full, {{selective: [..]}} or {{every: k}}, got {}",
                            fields.name_of(kField), node->text));
  }
  Fields choice = fields.section(kField);
  ActivationCheckpointing checkpointing;
  checkpointing.operators = read_operators(choice, "selective");
  checkpointing.every_second = read_operators(choice, "every_second");
  if (const Node* modules = choice.find("modules"))
    checkpointing.modules = texts_of(*modules, choice.name_of("modules"));
  for (const char* key : {"selective", "every_second", "modules"})
    if (choice.find(key) != nullptr) checkpointing.kind = Kind::Selective;
  if (choice.find("every") != nullptr) {
    if (checkpointing.kind == Kind::Selective)
      choice.fail("training.activation_checkpointing: expected one of selective and every");
    checkpointing.kind = Kind::Every;
    choice.read("every", checkpointing.every, 1, 1 << 20);
  }
  if (checkpointing.kind == Kind::None)
    choice.fail("training.activation_checkpointing: expected selective or every");
  choice.refuse_unknown();
  return checkpointing;
}

TrainingJob read_training(Fields fields, const StrategyJob& strategy) {
  TrainingJob training;
  training.gradient_accumulation.sync = usual_sync(strategy);
  fields.read("micro_batch", training.micro_batch, 1, kMostTokens);
  fields.read("sequence_length", training.sequence_length, 1, kMostTokens);
  if (training.micro_batch > kMostTokens / training.sequence_length)
    fields.fail(
        fmt::format("training: micro_batch x sequence_length is more than {} tokens", kMostTokens));
  Fields accumulation = fields.section("gradient_accumulation");
  accumulation.read("steps", training.gradient_accumulation.steps, 1, kMostMicroSteps);
  read_name(accumulation, "sync", training.gradient_accumulation.sync, accumulation_sync_from);
  accumulation.refuse_unknown();
  training.activation_checkpointing = read_checkpointing(fields);
  Fields loss = fields.section("loss");
  loss.read("chunks", training.loss_chunks, 1, 1 << 16);
  loss.refuse_unknown();
  training.optimizer = read_optimizer(fields.section("optimizer"));
  training.schedule = read_schedule(fields.section("schedule"));
  read_optional(fields, "clip_grad_norm", training.clip_grad_norm, kPositive);
  read_name(fields, "attention", training.attention, attention_from);
  read_name(fields, "attention_kernel", training.attention_kernel, attention_kernel_from);
  read_name(fields, "matmul_dtype", training.matmul_dtype, matmul_dtype_from);
  fields.refuse_unknown();
  return training;
}

RunJob read_run(Fields fields) {
  RunJob run;
  fields.read("weights", run.weights);
  fields.read("tokens", run.tokens);
  read_name(fields, "token_dtype", run.token_dtype, dtype_from);
  if (run.token_dtype != Dtype::UInt16 && run.token_dtype != Dtype::UInt32)
    fail(*fields.find("token_dtype"), "run.token_dtype: expected uint16 or uint32");
  fields.read("labels", run.labels);
  fields.read("data_order", run.data_order);
  fields.read("steps", run.steps, 1, kMostSteps);
  fields.read("seed", run.seed, 0, std::numeric_limits<std::int64_t>::max());
  fields.read("output", run.output);
  fields.read("checkpoint_every", run.checkpoint_every, 0, kMostSteps);
  fields.refuse_unknown();
  return run;
}

}  // namespace

Job job_from(const Node& document, const Hardware* hardware, ModelNeed need, JobUse use) {
  Fields root(document, "");
  for (const char* section : {"model", "cluster", "strategy", "training", "run"})
    root.find(section);
  root.refuse_unknown();  // first: a section with a wrong name would be missed as an empty one
  Job job;
  job.model = read_model(root.section("model"), hardware, need);
  job.cluster = read_cluster(root, hardware);
  job.strategy = read_strategy(root.section("strategy"), job.cluster.gpu, use);
  job.training = read_training(root.section("training"), job.strategy);
  job.run = read_run(root.section("run"));
  job.places = FieldPlaces(document);
  if (hardware == nullptr) job.places.set_resolved();  // only those do without a catalogue
  return job;
}

Job parse_job(std::string_view yaml, const std::string& source, const Hardware& hardware,
              std::span<const Setting> overrides, ModelNeed need, JobUse use) {
  Node document = parse_yaml(yaml, source);
  for (const Setting& setting : overrides)
    apply_setting(document, setting);
  return job_from(document, &hardware, need, use);
}

Job read_job(const std::string& path, const Hardware& hardware,
             std::span<const Setting> overrides) {
  if (path.empty()) return parse_job("", "command line", hardware, overrides);
  return parse_job(read_text(path), path, hardware, overrides);
}

}  // namespace shardplan
