#include "tests/oracle/deepspeed_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "planner/model.h"
#include "planner/planner.h"
#include "planner/torch/torch_plan.h"
#include "plans/document.h"
#include "plans/error.h"

namespace shardplan::oracle {
namespace {

using nlohmann::json;

/// Dimensions under the names of transformers, or short ones.
json config_of(const json& model) {
  if (model.contains("vocab_size")) {
    json config = model;
    config["model_type"] = "llama";
    config["tie_word_embeddings"] = false;
    return config;
  }
  if (model.at("arch") == "gpt2")
    return {{"model_type", "gpt2"},        {"vocab_size", model.at("vocab")},
            {"n_embd", model.at("d")},     {"n_layer", model.at("layers")},
            {"n_head", model.at("heads")}, {"n_positions", model.at("npos")}};
  return {{"model_type", "llama"},
          {"vocab_size", model.at("vocab")},
          {"hidden_size", model.at("d")},
          {"intermediate_size", model.at("ffn")},
          {"num_hidden_layers", model.at("layers")},
          {"num_attention_heads", model.at("heads")},
          {"num_key_value_heads", model.at("kv")},
          {"tie_word_embeddings", model.at("tied")}};
}

Dtype dtype_named(const std::string& name) {
  if (name == "fp32") return Dtype::Float32;
  if (name == "bf16") return Dtype::BFloat16;
  return dtype_from(name);
}

void set_strategy(const json& config, StrategyJob& strategy) {
  constexpr std::array kStages{Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Zero3};
  strategy.sharding = kStages.at(config.at("stage").get<std::size_t>());
  strategy.engine = Engine::DeepSpeed;
  strategy.profile = Profile::TorchEager;
  strategy.deepspeed.emplace();
  const Node section =
      parse_json(config.value("zero", json::object()).dump(), "zero", JsonPlaces::Lines);
  Fields fields(section, "zero");
  read_zero_options(fields, *strategy.deepspeed);
  fields.refuse_unknown();
  const Dtype dtype = dtype_named(config.at("dtype"));
  strategy.mixed_precision = {.param = dtype, .reduce = dtype, .buffer = dtype};
  if (config.contains("grad_dtype"))
    strategy.deepspeed->grad_accum_dtype = dtype_named(config.at("grad_dtype"));
}

Job job_of(const json& config) {
  Job job;
  job.cluster.gpus_per_node = config.at("world");
  job.cluster.nodes = 1;
  set_strategy(config, job.strategy);
  TrainingJob& training = job.training;
  training.micro_batch = config.at("mb");
  training.sequence_length = config.at("seq");
  training.gradient_accumulation = {.steps = config.value("accum", 1),
                                    .sync = usual_sync(job.strategy)};
  if (config.value("ac", false))
    training.activation_checkpointing.kind = ActivationCheckpointing::Kind::Full;
  training.clip_grad_norm = 1;
  using Implementation = OptimizerJob::Implementation;
  training.optimizer.implementation = config.value("opt", "torch") == "torch"
                                          ? Implementation::ForLoop  // PyTorch's default on a CPU
                                          : Implementation::Fused;
  return job;
}

}  // namespace

Plan deepspeed_plan(const json& config) {
  ModelGraph graph = model_from_config(config_of(config.at("model")).dump(), "the case's model");
  graph.buffers_bytes = 0;  // these models compute their tables anew
  const Job job = job_of(config);
  return make_plan(job, graph, torch::Setup{.cpu = true, .transformers = false});
}

}  // namespace shardplan::oracle
