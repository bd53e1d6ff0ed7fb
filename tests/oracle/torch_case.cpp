#include "tests/oracle/torch_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "planner/lora.h"
#include "planner/model.h"
#include "planner/passes/recomputation.h"
#include "planner/planner.h"
#include "planner/torch/torch_plan.h"
#include "plans/error.h"

namespace shardplan::oracle {
namespace {

using nlohmann::json;

json llama_config(const json& m) {
  return {{"model_type", "llama"},
          {"vocab_size", m.at("V")},
          {"hidden_size", m.at("H")},
          {"intermediate_size", m.at("I")},
          {"num_hidden_layers", m.at("L")},
          {"num_attention_heads", m.at("nh")},
          {"num_key_value_heads", m.at("nkv")},
          {"head_dim", m.at("hd")},
          {"rope_theta", m.value("theta", 10000.0)},
          {"tie_word_embeddings", m.at("tied")}};
}

json gpt2_config(const json& m) {
  return {{"model_type", "gpt2"},     {"vocab_size", m.at("V")},
          {"n_embd", m.at("H")},      {"n_inner", m.at("I")},
          {"n_layer", m.at("L")},     {"n_head", m.at("nh")},
          {"n_positions", m.at("P")}, {"tie_word_embeddings", m.at("tied")}};
}

/// Embedding, every block, and final norm with head, as torchtitan wraps them.
WrapPolicy wrap_with_ends(const ModelGraph& graph) {
  WrapPolicy wrap{.kind = WrapPolicy::Kind::Modules};
  std::string norm;
  std::string head;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag))) {
    const Operator& op = graph.dag[vertex];
    if (op.kind == OperatorKind::Embedding) wrap.names.push_back(op.module);
    if (op.kind == OperatorKind::RmsNorm || op.kind == OperatorKind::LayerNorm) norm = op.module;
    if (op.kind == OperatorKind::Linear) head = op.module;
  }
  for (const std::string& block : block_modules(graph))
    wrap.names.push_back(block);
  wrap.names.push_back(norm + ", " + head);
  return wrap;
}

/// Every block, and every layer that trains: PEFT's policy of wrapping adapters for FSDP1.
WrapPolicy wrap_with_leaves(const ModelGraph& graph) {
  WrapPolicy wrap{.kind = WrapPolicy::Kind::Modules, .names = block_modules(graph)};
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag))) {
    const Operator& op = graph.dag[vertex];
    if (std::ranges::any_of(op.parameters,
                            [&](int index) { return graph.parameters[index].trains(); }))
      wrap.names.push_back(op.module);
  }
  return wrap;
}

json qwen2_config(const json& m) {
  json config = llama_config(m);
  config["model_type"] = "qwen2";
  return config;
}

void set_engine(const json& config, StrategyJob& strategy) {
  const std::string name = config.at("strategy");
  if (name == "fsdp2") {
    strategy.engine = Engine::Fsdp2;
  } else if (name == "hsdp") {
    strategy.engine = Engine::Fsdp2;
    strategy.sharding = Strategy::HybridShard;
    strategy.shard_group = config.at("mesh").at(1).get<int>();
  } else if (name == "fsdp1") {
    strategy.engine = Engine::Fsdp1;
    strategy.sharding = strategy_from(config.at("sharding").get<std::string>());
    if (config.contains("mesh")) strategy.shard_group = config.at("mesh").at(1).get<int>();
  } else if (name == "replicate") {
    strategy.engine = Engine::Replicate;
    strategy.sharding = Strategy::NoShard;
  } else if (name == "ddp" || name == "single") {
    strategy.engine = Engine::Ddp;
    strategy.sharding = Strategy::Ddp;
  } else {
    throw InputError(fmt::format("strategy {} is not known", name));
  }
}

void set_strategy(const json& config, StrategyJob& strategy) {
  set_engine(config, strategy);
  if (config.contains("reshard_after_forward")) {
    const json& reshard = config.at("reshard_after_forward");
    strategy.reshard_after_forward =
        reshard.is_boolean() ? ReshardAfterForward{.reshard = reshard.get<bool>()}
                             : ReshardAfterForward{.reshard = true, .ranks = reshard.get<int>()};
  }
  const std::string precision = config.at("mp");
  if (config.value("autocast", false) && strategy.engine == Engine::Ddp)
    strategy.mixed_precision = {.param = Dtype::BFloat16};
  if (precision != "none")
    strategy.mixed_precision = {
        .param = Dtype::BFloat16,
        .reduce = precision == "bf16_bf16reduce" ? Dtype::BFloat16 : Dtype::Float32,
        .buffer = Dtype::Float32};
  strategy.cpu_offload.params = config.value("offload", false);
  strategy.use_orig_params = config.value("use_orig_params", false);
  strategy.ddp.gradient_as_bucket_view = config.value("gradient_as_bucket_view", false);
  strategy.ddp.bucket_cap_mb = config.value("bucket_cap_mb", 25.0);
  strategy.forward_prefetch = config.value("forward_prefetch", 0);
  strategy.backward_prefetch_units = config.value("backward_prefetch", 1);
  const std::string backward = config.value("fsdp1_backward_prefetch", "pre");
  strategy.backward_prefetch = backward == "none"   ? BackwardPrefetch::None
                               : backward == "post" ? BackwardPrefetch::Post
                                                    : BackwardPrefetch::Pre;
}

void set_optimizer(const json& config, OptimizerJob& optimizer) {
  const std::string name = config.at("optimizer");
  if (name == "sgd_momentum") optimizer.momentum = 0.9;
  optimizer.name = optimizer_from(name == "sgd_momentum" ? "sgd" : name);
  if (optimizer.name == OptimizerJob::Name::Sgd) optimizer.weight_decay = 0;
  const std::string implementation = config.at("opt_impl");
  optimizer.implementation =
      implementation_from(implementation == "forloop" ? "for-loop" : implementation);
}

/// Keys that torch_job() reads, or that change nothing here.
const std::set<std::string>& known_keys() {
  static const std::set<std::string> keys{"strategy",
                                          "world_size",
                                          "mp",
                                          "optimizer",
                                          "opt_impl",
                                          "ac",
                                          "micro_batch",
                                          "seq",
                                          "grad_accum",
                                          "accum_sync",
                                          "model",
                                          "gradient_as_bucket_view",
                                          "sharding",
                                          "use_orig_params",
                                          "reshard_after_forward",
                                          "mesh",
                                          "wrap_ends",
                                          "bucket_cap_mb",
                                          "forward_prefetch",
                                          "backward_prefetch",
                                          "fsdp1_backward_prefetch",
                                          "impl",
                                          "device",
                                          "rank",
                                          "kernel",
                                          "lora",
                                          "freeze",
                                          "weights",
                                          "autocast",
                                          "clip",
                                          "full_norm",
                                          "attn",
                                          "use_cache",
                                          "ce",
                                          "logits",
                                          "base_dtype",
                                          "save",
                                          "outputs_kept",
                                          "dropout",
                                          "padding",
                                          "leaf_wrap",
                                          "offload"};
  return keys;
}

/// Values of known keys that mean something else.
void refuse_values(const json& config) {
  const auto expect = [&](const char* key, std::initializer_list<json> known) {
    if (config.contains(key) && std::ranges::find(known, config.at(key)) == known.end())
      throw InputError(fmt::format("{}: {} is not supported yet", key, config.at(key).dump()));
  };
  expect("kernel", {"flash", "efficient", "math"});
  expect("ce", {"plain", "logits_returned", "chunked_ckpt", "chunked_logits", "chunked_backward"});
  expect("clip", {"foreach", "forloop", "fsdp1_method"});
  expect("ac", {"none", "every_block", "hf_default", "hf_nonreentrant"});
}

std::string block_of(const ModelGraph& graph, const std::string& parameter) {
  for (const std::string& block : block_modules(graph))
    if (parameter.starts_with(block + ".")) return block;
  return "";
}

/// What the case does not train.
void freeze(ModelGraph& graph, const std::string& what) {
  const std::vector<std::string> blocks = block_modules(graph);
  const std::set<std::string> first(blocks.begin(), blocks.begin() + std::ssize(blocks) / 2);
  for (Parameter& parameter : graph.parameters) {
    const std::string block = block_of(graph, parameter.name);
    const bool embeds = parameter.name.find("embed_tokens") != std::string::npos ||
                        parameter.name.find("wte") != std::string::npos ||
                        parameter.name.find("wpe") != std::string::npos;
    if (what == "blocks") parameter.trainable = block.empty();
    if (what.starts_with("first_half")) parameter.trainable = !first.contains(block);
    if (what.ends_with("embed")) parameter.trainable = parameter.trainable && !embeds;
  }
}

ModelGraph with_adapters(ModelGraph graph, const json& lora) {
  const bool gpt2 = graph.family == "gpt2";
  LoraJob job{.rank = lora.at("r")};
  if (lora.value("dtype", "") == "bf16") job.dtype = Dtype::BFloat16;
  if (lora.at("targets") == "qv")
    job.targets =
        gpt2 ? std::vector<std::string>{"c_attn"} : std::vector<std::string>{"q_proj", "v_proj"};
  else
    job.targets = gpt2 ? std::vector<std::string>{"c_attn", "c_proj", "c_fc"}
                       : std::vector<std::string>{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                  "gate_proj", "up_proj", "down_proj"};
  for (Parameter& parameter : graph.parameters)
    parameter.trainable = false;
  return with_lora(graph, job);
}

torch::SdpaBackend backend_of(const json& config) {
  const std::string kernel = config.value("kernel", "flash");
  if (kernel == "efficient") return torch::SdpaBackend::Efficient;
  if (kernel == "math") return torch::SdpaBackend::Math;
  return torch::SdpaBackend::Flash;
}

void set_loss(const json& config, torch::Setup& setup) {
  const std::string loss = config.value("ce", "plain");
  if (loss == "logits_returned")
    setup.loss = config.at("logits") == "kept" ? torch::LossPlace::LoopHoldsLogits
                                               : torch::LossPlace::LoopDropsLogits;
  if (loss == "chunked_logits") setup.loss_chunk = torch::LossChunk::AfterLogits;
  if (loss == "chunked_backward") setup.loss_chunk = torch::LossChunk::WithOwnBackward;
}

}  // namespace

ModelGraph torch_model(const json& dimensions) {
  std::string family = dimensions.at("fam");
  const bool transformers = family.starts_with("hf-");
  if (transformers) family = family.substr(3);
  if (family != "llama" && family != "gpt2" && family != "qwen2")
    throw InputError(fmt::format("family {} is not known", family));
  const json config = family == "llama"   ? llama_config(dimensions)
                      : family == "qwen2" ? qwen2_config(dimensions)
                                          : gpt2_config(dimensions);
  ModelGraph graph = model_from_config(config.dump(), "the case's model");
  // transformers keeps the inverse frequencies of rotary embeddings twice, these models once.
  if (!transformers) graph.buffers_bytes /= 2;
  return graph;
}

Job torch_job(const json& config, const ModelGraph& graph) {
  for (const auto& [key, value] : config.items())
    if (!known_keys().contains(key)) throw InputError(fmt::format("{} is not known", key));
  Job job;
  job.cluster.gpus_per_node = config.at("world_size");
  job.cluster.nodes = 1;
  set_strategy(config, job.strategy);
  if (config.value("wrap_ends", false)) job.strategy.wrap = wrap_with_ends(graph);
  if (config.value("leaf_wrap", false)) job.strategy.wrap = wrap_with_leaves(graph);
  TrainingJob& training = job.training;
  training.micro_batch = config.at("micro_batch");
  training.sequence_length = config.at("seq");
  training.gradient_accumulation = {
      .steps = config.at("grad_accum"),
      .sync = accumulation_sync_from(config.at("accum_sync").get<std::string>())};
  if (config.at("ac") != "none")
    training.activation_checkpointing.kind = ActivationCheckpointing::Kind::Full;
  set_optimizer(config, training.optimizer);
  if (config.contains("clip")) training.clip_grad_norm = 1;
  if (config.value("ce", "plain").starts_with("chunked")) training.loss_chunks = 8;
  if (config.value("attn", "sdpa") == "eager") training.attention = AttentionKind::Eager;
  for (const char* key : {"weights", "base_dtype"})
    if (config.value(key, "") == "bf16") job.model.dtype = Dtype::BFloat16;
  return job;
}

Plan torch_plan(const json& config, const ModelGraph& base) {
  refuse_values(config);
  ModelGraph graph = base;
  if (config.contains("freeze")) freeze(graph, config.at("freeze"));
  if (config.contains("lora")) graph = with_adapters(std::move(graph), config.at("lora"));
  torch::Setup setup{.fake = true,
                     .cpu = config.value("device", "cpu") == "cpu",
                     .transformers = config.value("impl", "own") == "hf"};
  // null: the model's default
  setup.use_cache = config.contains("use_cache") && config.at("use_cache") != json(false);
  setup.padding = config.value("padding", false);
  setup.dropout = config.value("dropout", 0.0) > 0;
  setup.keeps_outputs = config.value("outputs_kept", false);
  setup.backend = backend_of(config);
  set_loss(config, setup);
  if (config.value("autocast", false)) setup.autocast = Dtype::BFloat16;
  return make_plan(torch_job(config, graph), graph, setup);
}

}  // namespace shardplan::oracle
