#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/job_reader.h"
#include "plans/setting.h"

namespace shardplan {

/// A flag that is short for --set field=value.
struct FieldFlag {
  std::string_view flag;
  std::string_view value;  // what stands for the value in the help
  std::string_view field;
  std::string_view help;
};
inline constexpr std::array kFieldFlags{
    FieldFlag{"--model", "NAME", "model.preset", "preset or Hugging Face id"},
    FieldFlag{"--hf-config", "PATH", "model.hf_config", "config.json, or the folder that holds it"},
    FieldFlag{"--graph", "PATH", "model.graph", "graph YAML of a model of your own"},
    FieldFlag{"--as-family", "FAMILY", "model.as_family", "model_type to read the config.json as"},
    FieldFlag{"--gpu", "NAME", "cluster.gpu", "GPU of the catalogue, or cpu"},
    FieldFlag{"--cluster", "FILE", "cluster", "section of a file, as calibrate writes it"},
    FieldFlag{"--seq", "TOKENS", "training.sequence_length", "sequence length"},
    FieldFlag{"--micro-batch", "N", "training.micro_batch", "sequences per GPU and step"},
    FieldFlag{"--sharding", "STRATEGY", "strategy.sharding",
              "how the model is sharded, e.g. FULL_SHARD or DDP"},
    FieldFlag{"--engine", "NAME", "strategy.engine", "native, fsdp2, fsdp1, ddp or replicate"},
    FieldFlag{"--steps", "N", "run.steps", "training steps"},
    FieldFlag{"--output", "FOLDER", "run.output", "folder that run writes to"},
};

/// A job as the command line gives it: a file, and flags that override single fields of it.
struct JobFlags {
  std::string path;               // empty: the defaults
  std::vector<Setting> settings;  // in order; the last of a field counts
  std::string gpus;               // --gpus, or --ranks; empty: not given
  std::string nodes;              // --nodes; empty: not given
  JobUse use = JobUse::Predict;

  bool any() const { return !settings.empty() || !gpus.empty() || !nodes.empty(); }
};

/// The settings that a FieldFlag with this value stands for. Naming a model by one of the two flags
/// takes back what the job file says with the other.
std::vector<Setting> settings_of(const FieldFlag& flag, const std::string& value);

/// The count that a flag like --gpus gives. Throws InputError.
int count_of(std::string_view flag, const std::string& text);

/// The job that `yaml` and the flags give; `source` names the text in errors. Throws InputError.
Job job_from(std::string_view yaml, const std::string& source, const JobFlags& flags,
             const Hardware& hardware);

}  // namespace shardplan
