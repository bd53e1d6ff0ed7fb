#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/import/auto_values.h"
#include "planner/import/deepspeed_sections.h"
#include "planner/import/import_parts.h"
#include "plans/names.h"

// _configure_basic_optimizer() of deepspeed/runtime/engine.py and runtime/lr_schedules.py, 0.19.8.

namespace shardplan::importing {
namespace {

/// Sets what the parameters say; what they do not say has DeepSpeed's FusedAdam's defaults.
void read_optimizer_params(Fields params, bool is_sgd, OptimizerJob& optimizer) {
  const double below_one = std::nextafter(1.0, 0.0);
  params.read("lr", optimizer.lr, 0);
  params.read("eps", optimizer.eps, 0);
  params.read("weight_decay", optimizer.weight_decay, 0);
  if (is_sgd) params.read("momentum", optimizer.momentum, 0, below_one);
  if (const Node* betas = params.find("betas")) {
    const std::string name = params.name_of("betas");
    if (betas->items.size() != 2) fail(*betas, name + ": expected a list of two numbers");
    optimizer.beta1 = real_of(betas->items[0], name, 0, below_one);
    optimizer.beta2 = real_of(betas->items[1], name, 0, below_one);
  }
}

void read_optimizer(Fields fields, Imported& imported) {
  OptimizerJob& optimizer = imported.job.training.optimizer;
  const Node* type = fields.find("type");
  if (type == nullptr) {
    leave_open(imported, fields.place(), "optimizer",
               "the script's own optimizer; AdamW is planned");
    return;
  }
  const std::string name = text_of(*type, "optimizer.type");
  Fields params = fields.section("params");
  optimizer = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0};
  optimizer.implementation = OptimizerJob::Implementation::Fused;
  const std::string word = lower(name);
  if (word == "adam" || word == "adamw") {
    bool decoupled = true;
    if (word == "adam") params.read("adam_w_mode", decoupled);
    optimizer.name = decoupled ? OptimizerJob::Name::AdamW : OptimizerJob::Name::Adam;
    if (word == "adam" && decoupled)
      warn(imported, type->where, "optimizer.type",
           fmt::format("optimizer.type: {} decays as AdamW, because adam_w_mode is true unless "
                       "params say otherwise",
                       name));
  } else if (word == "sgd") {
    optimizer.name = OptimizerJob::Name::Sgd;
    optimizer.implementation = OptimizerJob::Implementation::Foreach;
  } else {
    warn(
        imported, type->where, "optimizer.type",
        fmt::format("optimizer.type: {} is not supported yet; supported: Adam, AdamW, SGD; the job "
                    "says adamw, whose state is 8 bytes a parameter",
                    name));
  }
  read_optimizer_params(params, word == "sgd", optimizer);
}

void read_scheduler(Fields fields, Imported& imported) {
  const Node* type = fields.find("type");
  if (type == nullptr) return;
  ScheduleJob& schedule = imported.job.training.schedule;
  const std::string name = text_of(*type, "scheduler.type");
  Fields params = fields.section("params");
  if (name == "WarmupLR") {
    schedule.name = ScheduleJob::Name::Constant;
  } else if (name == "WarmupDecayLR") {
    schedule = {.name = ScheduleJob::Name::Linear, .warmup_steps = 0, .min_lr_ratio = 0};
  } else if (name == "WarmupCosineLR") {
    schedule = {.name = ScheduleJob::Name::Cosine, .warmup_steps = 0, .min_lr_ratio = 1e-4};
    params.read("cos_min_ratio", schedule.min_lr_ratio, 0, 1);
  } else {
    warn(imported, type->where, "scheduler.type",
         fmt::format("scheduler.type: {} is not supported yet; supported: WarmupLR, WarmupDecayLR, "
                     "WarmupCosineLR; the job says constant",
                     name));
    return;
  }
  schedule.warmup_steps = 1000;
  params.read("warmup_num_steps", schedule.warmup_steps, 0, 10'000'000);
  const Node* shape = params.find("warmup_type");
  if (schedule.warmup_steps > 1 && (shape == nullptr || shape->text == "log"))
    warn(imported, type->where, "scheduler.params.warmup_type",
         fmt::format("scheduler.params.warmup_type is log{}: the job's warm-up is a line",
                     shape == nullptr ? " by default" : ""));
}

void read_clipping(const Node& document, Fields& root, Imported& imported) {
  double most = 1;  // GRADIENT_CLIPPING_DEFAULT of runtime/constants.py
  root.read("gradient_clipping", most, 0);
  const bool is_given = std::ranges::any_of(
      document.entries, [](const Entry& entry) { return entry.key == "gradient_clipping"; });
  if (!is_given)
    warn(imported, root.place(), "gradient_clipping",
         "gradient_clipping is absent: DeepSpeed 0.19.8 then clips at 1.0; 0 turns it off");
  imported.job.training.clip_grad_norm = most >= kPositive ? std::optional(most) : std::nullopt;
  imported.set("gradient_clipping", most);
}

}  // namespace

void read_zero_training(const Node& document, Fields& root, Imported& imported) {
  read_optimizer(root.section("optimizer"), imported);
  read_scheduler(root.section("scheduler"), imported);
  read_clipping(document, root, imported);
}

}  // namespace shardplan::importing
