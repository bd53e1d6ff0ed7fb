#include <strings.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <nlohmann/json.hpp>

#include "plans/job_document.h"
#include "plans/job_reader.h"

namespace shardplan {
namespace {

using json = nlohmann::ordered_json;

template <typename Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json();
}

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json lora_json(const LoraJob& lora) {
  return {{"rank", lora.rank},
          {"alpha", lora.alpha},
          {"targets", lora.targets},
          {"dtype", to_string(lora.dtype)}};
}

json model_json(const ModelJob& model) {
  return {{"preset", or_null(model.preset)},
          {"hf_config", or_null(model.hf_config)},
          {"graph", or_null(model.graph)},
          {"as_family", or_null(model.as_family)},
          {"dtype", to_string(model.dtype)},
          {"tie_word_embeddings", or_null(model.tie_word_embeddings)},
          {"trainable", or_null(model.trainable)},
          {"lora", model.lora ? lora_json(*model.lora) : json()}};
}

json gpu_json(const GpuSpec& gpu) {
  json object{{"key", gpu.key},
              {"name", gpu.name},
              {"compute_capability", or_null(gpu.compute_capability)},
              {"multiprocessors", gpu.multiprocessors},
              {"memory_bytes", gpu.memory_bytes},
              {"node_type", gpu.node_type},
              {"max_gpus_per_node", gpu.max_gpus_per_node},
              {"price_per_hour", or_null(gpu.price_per_hour)},
              {"source", gpu.source}};
  visit_rates(gpu, [&](const char* field, double rate, double) { object[field] = rate; });
  return object;
}

json network_json(const NetworkSpec& network) {
  json object{{"intra_node_link", to_string(network.intra_node_link)},
              {"intra_node_bytes_per_s", network.intra_node_bytes_per_s},
              {"intra_node_efficiency", network.intra_node_efficiency}};
  visit_links(network, [&](const char* field, auto value, auto, auto) { object[field] = value; });
  return object;
}

json cluster_json(const ClusterJob& cluster) {
  return {{"gpu", gpu_json(cluster.gpu)},
          {"gpus_per_node", cluster.gpus_per_node},
          {"nodes", cluster.nodes},
          {"network", network_json(cluster.network)},
          {"price_per_gpu_hour", or_null(cluster.price_per_gpu_hour)}};
}

json wrap_json(const WrapPolicy& wrap) {
  json result{{"policy", to_string(wrap.kind)}};
  switch (wrap.kind) {
    case WrapPolicy::Kind::Transformer:
      result["layer_classes"] = wrap.layer_classes.empty() ? json() : json(wrap.layer_classes);
      break;
    case WrapPolicy::Kind::Size: result["min_params"] = wrap.min_params; break;
    case WrapPolicy::Kind::Modules: result["names"] = wrap.names; break;
    case WrapPolicy::Kind::None: break;
  }
  return result;
}

json precision_json(const std::optional<MixedPrecision>& precision) {
  if (!precision) return {};
  return {{"param", to_string(precision->param)},
          {"reduce", to_string(precision->reduce)},
          {"buffer", to_string(precision->buffer)}};
}

json reshard_json(const std::optional<ReshardAfterForward>& reshard) {
  if (!reshard) return {};
  return reshard->ranks > 0 ? json(reshard->ranks) : json(reshard->reshard);
}

/// Adds one option; an overload for each type of option.
struct OptionWriter {
  json& object;

  void operator()(const char* key, const std::optional<bool>& value, int) {
    object[key] = or_null(value);
  }
  void operator()(const char* key, const std::string& value, int) { object[key] = or_null(value); }
  void operator()(const char* key, OffloadDevice value, int) { object[key] = to_string(value); }
  void operator()(const char* key, bool value, int) { object[key] = value; }
  void operator()(const char* key, std::int64_t value, int) { object[key] = value; }
  void operator()(const char* key, double value, int) { object[key] = value; }
};

json deepspeed_json(const std::optional<DeepSpeedOptions>& options) {
  json object = json::object();
  if (!options) return object;
  visit_zero_options(*options, OptionWriter{object});
  visit_offload_param(options->offload_param, OptionWriter{object["offload_param"]});
  visit_offload_optimizer(options->offload_optimizer, OptionWriter{object["offload_optimizer"]});
  object["grad_accum_dtype"] =
      options->grad_accum_dtype ? json(to_string(*options->grad_accum_dtype)) : json();
  return object;
}

json strategy_json(const StrategyJob& strategy) {
  const auto name_or_null = [](const auto& value) {
    return value ? json(to_string(*value)) : json();
  };
  json backward_prefetch;
  if (strategy.backward_prefetch_units > 1)
    backward_prefetch = strategy.backward_prefetch_units;
  else if (strategy.backward_prefetch != BackwardPrefetch::None)
    backward_prefetch = to_string(strategy.backward_prefetch);
  return {{"sharding", to_string(strategy.sharding)},
          {"engine", name_or_null(strategy.engine)},
          {"profile", name_or_null(strategy.profile)},
          {"framework_version", or_null(strategy.framework_version)},
          {"layout", name_or_null(strategy.layout)},
          {"use_orig_params", strategy.use_orig_params},
          {"shard_group", or_null(strategy.shard_group)},
          {"wrap", wrap_json(strategy.wrap)},
          {"mixed_precision", precision_json(strategy.mixed_precision)},
          {"reshard_after_forward", reshard_json(strategy.reshard_after_forward)},
          {"backward_prefetch", std::move(backward_prefetch)},
          {"forward_prefetch", strategy.forward_prefetch},
          {"limit_all_gathers", strategy.limit_all_gathers},
          {"cpu_offload",
           {{"params", strategy.cpu_offload.params},
            {"optimizer", strategy.cpu_offload.optimizer},
            {"activations", strategy.cpu_offload.activations}}},
          {"ddp",
           {{"bucket_cap_mb", strategy.ddp.bucket_cap_mb},
            {"gradient_as_bucket_view", strategy.ddp.gradient_as_bucket_view}}},
          {"deepspeed", deepspeed_json(strategy.deepspeed)},
          {"allocator", {{"expandable_segments", strategy.expandable_segments}}}};
}

json checkpointing_json(const ActivationCheckpointing& checkpointing) {
  switch (checkpointing.kind) {
    case ActivationCheckpointing::Kind::None: return "none";
    case ActivationCheckpointing::Kind::Full: return "full";
    case ActivationCheckpointing::Kind::Every: return {{"every", checkpointing.every}};
    case ActivationCheckpointing::Kind::Selective: break;
  }
  const auto names_of = [](const std::vector<OperatorKind>& kinds) {
    json names = json::array();
    for (const OperatorKind kind : kinds)
      names.push_back(spec(kind).name);
    return names;
  };
  json selective = {{"selective", names_of(checkpointing.operators)}};
  if (!checkpointing.every_second.empty())
    selective["every_second"] = names_of(checkpointing.every_second);
  if (!checkpointing.modules.empty()) selective["modules"] = checkpointing.modules;
  return selective;
}

json training_json(const TrainingJob& training) {
  const OptimizerJob& optimizer = training.optimizer;
  return {{"micro_batch", training.micro_batch},
          {"sequence_length", training.sequence_length},
          {"gradient_accumulation",
           {{"steps", training.gradient_accumulation.steps},
            {"sync", to_string(training.gradient_accumulation.sync)}}},
          {"activation_checkpointing", checkpointing_json(training.activation_checkpointing)},
          {"loss", {{"chunks", training.loss_chunks}}},
          {"optimizer",
           {{"name", to_string(optimizer.name)},
            {"lr", optimizer.lr},
            {"betas", json::array({optimizer.beta1, optimizer.beta2})},
            {"eps", optimizer.eps},
            {"weight_decay", optimizer.weight_decay},
            {"momentum", optimizer.momentum},
            {"decay", to_string(optimizer.decay)},
            {"state_dtype", to_string(optimizer.state_dtype)},
            {"implementation", to_string(optimizer.implementation)}}},
          {"schedule",
           {{"name", to_string(training.schedule.name)},
            {"warmup_steps", training.schedule.warmup_steps},
            {"min_lr_ratio", training.schedule.min_lr_ratio}}},
          {"clip_grad_norm", or_null(training.clip_grad_norm)},
          {"attention", to_string(training.attention)},
          {"attention_kernel", to_string(training.attention_kernel)},
          {"matmul_dtype", to_string(training.matmul_dtype)}};
}

json run_json(const RunJob& run) {
  return {{"weights", or_null(run.weights)},
          {"tokens", or_null(run.tokens)},
          {"token_dtype", to_string(run.token_dtype)},
          {"labels", or_null(run.labels)},
          {"data_order", or_null(run.data_order)},
          {"steps", run.steps},
          {"seed", run.seed},
          {"output", run.output},
          {"checkpoint_every", run.checkpoint_every}};
}

json job_json(const Job& job) {
  return {{"model", model_json(job.model)},
          {"cluster", cluster_json(job.cluster)},
          {"strategy", strategy_json(job.strategy)},
          {"training", training_json(job.training)},
          {"run", run_json(job.run)}};
}

/// JSON text; a path need not be UTF-8, JSON must.
std::string text_of(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

/// A word that YAML takes for text without quotes.
bool is_plain_word(const std::string& text) {
  constexpr std::array kNotText{"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  const auto in_words = [](unsigned char c) {
    return std::isalnum(c) || std::strchr("_-./", static_cast<char>(c)) != nullptr;
  };
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) &&
         std::ranges::all_of(text, in_words) &&
         std::ranges::none_of(
             kNotText, [&](const char* word) { return strcasecmp(text.c_str(), word) == 0; });
}

/// Mappings in block style, lists of scalars in flow style; scalars as JSON writes them.
void add_yaml(std::string& yaml, const json& value, int indent) {
  for (const auto& [key, entry] : value.items()) {
    yaml += std::string(static_cast<std::size_t>(indent), ' ') + key + ':';
    if (entry.is_object() && !entry.empty()) {
      yaml += '\n';
      add_yaml(yaml, entry, indent + 2);
      continue;
    }
    const bool word = entry.is_string() && is_plain_word(entry.get<std::string>());
    yaml += ' ' + (word ? entry.get<std::string>() : text_of(entry, -1)) + '\n';
  }
}

}  // namespace

std::string job_to_json(const Job& job) { return text_of(job_json(job), 2); }

std::string job_to_yaml(const Job& job, const Hardware& hardware) {
  json document = job_json(job);
  const auto& gpus = hardware.gpus();
  if (std::ranges::find(gpus, job.cluster.gpu) != gpus.end()) {
    document["cluster"]["gpu"] = job.cluster.gpu.key;
    if (hardware.network_of(job.cluster.gpu) == job.cluster.network)
      document["cluster"]["network"] = json::object();
  }
  std::string yaml;
  add_yaml(yaml, document, 0);
  return yaml;
}

Job job_from_json(std::string_view text, const std::string& source) {
  return job_from(parse_json(text, source), nullptr);
}

}  // namespace shardplan
