#include "tests/oracle/numerics_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plans/error.h"

namespace shardplan::oracle {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json read_json(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw InputError(path.string() + ": cannot be read");
  return json::parse(file);
}

/// Our strategy for one of the oracle's, where there is one; one rank alone is DDP over one rank.
std::optional<Strategy> strategy_of(const std::string& name) {
  static const std::map<std::string, Strategy> known = {
      {"single", Strategy::Ddp},
      {"ddp", Strategy::Ddp},
      {"fsdp1-full", Strategy::FullShard},
      {"fsdp1-gradop", Strategy::ShardGradOp},
      {"fsdp1-noshard", Strategy::NoShard},
      {"fsdp2-reshard", Strategy::FullShard},
      {"fsdp1-hybrid", Strategy::HybridShard},
      {"fsdp1-hybrid2", Strategy::HybridShardZero2},
      {"fsdp2-noreshard", Strategy::ShardGradOp},
      {"fsdp2-hsdp", Strategy::HybridShard},
      {"fsdp2-hsdp-noreshard", Strategy::HybridShardZero2},
  };
  const auto found = known.find(name);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

std::string why_not_supported(const json& settings) {
  const json& optimizer = settings.at("optimizer");
  if (!strategy_of(settings.at("strategy"))) {
    return "strategy " + settings.at("strategy").get<std::string>();
  }
  if (optimizer.value("nesterov", false)) return "Nesterov momentum";
  return "";
}

/// "all", or what the oracle calls weights of two extents.
OptimizerJob::Decay decay_of(const std::string& decay) {
  return decay == "all" ? OptimizerJob::Decay::All : OptimizerJob::Decay::Matrices;
}

/// "fp32", or the dtypes of parameters and reductions: "bf16-fp32".
std::optional<MixedPrecision> precision_of(const std::string& dtype) {
  if (dtype == "fp32") return std::nullopt;
  const Dtype reduce = dtype == "bf16-bf16" ? Dtype::BFloat16 : Dtype::Float32;
  return MixedPrecision{.param = Dtype::BFloat16, .reduce = reduce, .buffer = Dtype::BFloat16};
}

OptimizerJob optimizer_of(const json& settings) {
  OptimizerJob optimizer;
  optimizer.lr = settings.at("lr");
  optimizer.weight_decay = settings.at("weight_decay");
  optimizer.momentum = settings.value("momentum", 0.0);
  optimizer.decay = decay_of(settings.value("decay", "all"));
  if (settings.at("kind") == "sgd") {
    optimizer.name = OptimizerJob::Name::Sgd;
    return optimizer;
  }
  optimizer.name =
      settings.at("kind") == "adam" ? OptimizerJob::Name::Adam : OptimizerJob::Name::AdamW;
  optimizer.beta1 = settings.at("betas").at(0);
  optimizer.beta2 = settings.at("betas").at(1);
  optimizer.eps = settings.at("eps");
  return optimizer;
}

ScheduleJob schedule_of(const json& settings) {
  ScheduleJob schedule;
  if (settings.at("kind") == "constant") return schedule;
  if (settings.at("kind") != "warmup-cosine") {
    throw InputError("schedule " + settings.at("kind").get<std::string>() + " is not known");
  }
  schedule.name = ScheduleJob::Name::Cosine;
  schedule.warmup_steps = settings.at("warmup");
  schedule.min_lr_ratio = settings.at("min_ratio");
  return schedule;
}

Job job_of(const json& settings, const fs::path& folder, const Hardware& hardware) {
  const auto path_of = [&](const char* key) {
    return (folder / settings.at(key).get<std::string>()).lexically_normal();
  };
  Job job;
  job.model.hf_config = (path_of("model_dir") / "config.json").string();
  job.cluster.gpu = hardware.gpu("cpu");
  job.cluster.network = hardware.network_of(job.cluster.gpu);
  job.cluster.gpus_per_node = settings.at("world");
  job.strategy.sharding = *strategy_of(settings.at("strategy"));
  if (const json& mesh = settings.at("mesh"); mesh.size() > 1)
    job.strategy.shard_group = mesh.back().get<int>();
  job.strategy.engine = Engine::Native;
  if (settings.at("strategy").get<std::string>().starts_with("fsdp2"))
    job.strategy.layout = Layout::PerParameter;
  job.strategy.mixed_precision = precision_of(settings.at("dtype"));
  if (settings.at("checkpoint") == true)
    job.training.activation_checkpointing = {ActivationCheckpointing::Kind::Full, {}};
  job.training.gradient_accumulation = {
      settings.at("accum"), settings.at("no_sync") == true ? GradientAccumulation::Sync::Last
                                                           : GradientAccumulation::Sync::Every};
  job.training.micro_batch = settings.at("micro_batch_sequences");
  job.training.sequence_length = settings.at("seq_len");
  job.training.optimizer = optimizer_of(settings.at("optimizer"));
  job.training.schedule = schedule_of(settings.at("schedule"));
  if (const json& norm = settings.at("clip_max_norm"); !norm.is_null()) {
    job.training.clip_grad_norm = norm.get<double>();
  }
  job.run.weights = (path_of("model_dir") / "model.safetensors").string();
  job.run.tokens = path_of("data").string();
  job.run.data_order = (folder / "batches.json").string();
  job.run.steps = settings.at("steps");
  return job;
}

StatisticsByName statistics_of(const json& tensors) {
  StatisticsByName statistics;
  for (const auto& [name, t] : tensors.items()) {
    statistics[name] = {t.at("sum"), t.at("abs_sum"), t.at("l2")};
  }
  return statistics;
}

NumericsExpectation expectation_of(const json& expected) {
  return {.loss = expected.at("loss"),
          .grad_norm = expected.at("grad_norm"),
          .final_weights = statistics_of(expected.at("final")),
          .gradient_of_step0 = statistics_of(expected.at("grad_step0"))};
}

NumericsLimits limits_of(const json& tolerances, const json& settings) {
  const std::string optimizer = settings.at("optimizer").at("kind");
  const json& of = tolerances.at(settings.at("dtype") == "fp32" ? "fp32" : "bf16");
  return {.loss = of.at("loss"),
          .grad_norm_step0 = of.at("grad_norm_step0"),
          .grad_norm = of.at("grad_norm"),
          .gradient_of_step0 = of.at("grad_step0_rel_l2"),
          .final_rel_l2 = of.at("final_rel_l2").at(optimizer),
          .final_max_abs = of.at("final_max_abs").at(optimizer),
          .final_tensor_l2 = of.at("final_tensor_l2").at(optimizer),
          .key_bias = tolerances.at("gpt2_key_bias_tensor_l2_with_adam")};
}

NumericsCase read_case(const fs::path& folder, const json& tolerances, const Hardware& hardware) {
  NumericsCase one;
  one.name = folder.filename().string();
  one.folder = folder;
  const json settings = read_json(folder / "case.json");
  one.not_supported = why_not_supported(settings);
  if (!one.not_supported.empty()) return one;
  one.job = job_of(settings, folder, hardware);
  one.masked = settings.at("masked");
  one.expected = expectation_of(read_json(folder / "expected.json"));
  one.limits = limits_of(tolerances, settings);
  const fs::path weights = folder / "final.safetensors";
  if (fs::exists(weights)) one.final_weights = weights;
  return one;
}

}  // namespace

std::vector<NumericsCase> read_numerics_cases(const fs::path& folder, const Hardware& hardware) {
  if (!fs::is_directory(folder / "cases")) {
    throw InputError(folder.string() + ": has no folder `cases`");
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(folder / "cases")) {
    folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<NumericsCase> cases;
  fs::path reading = folder / "tolerances.json";
  try {
    const json tolerances = read_json(reading);
    for (const fs::path& one : folders) {
      reading = one;
      cases.push_back(read_case(one, tolerances, hardware));
    }
  } catch (const json::exception& error) {
    throw InputError(fmt::format("{}: {}", reading.string(), error.what()));
  }
  return cases;
}

}  // namespace shardplan::oracle
