#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/setting.h"

namespace shardplan {

/// Whether a job must name a model. A launcher's file that becomes a job has none.
enum class ModelNeed { Required, Optional };

/// What is asked of a job. Where it names no engine, Predict means the one of PyTorch's that does
/// its sharding (fsdp2, ddp, replicate), on a CPU and for Run our own. ZERO_* mean deepspeed.
enum class JobUse { Predict, Run };

/// Parses a job file; `source` names it in errors ("file:line:column: ..."). `overrides` are
/// applied on top. Throws InputError.
Job parse_job(std::string_view yaml, const std::string& source, const Hardware& hardware,
              std::span<const Setting> overrides, ModelNeed need = ModelNeed::Required,
              JobUse use = JobUse::Run);

/// Reads the file at `path`, or starts from the defaults when it is empty.
Job read_job(const std::string& path, const Hardware& hardware, std::span<const Setting> overrides);

/// The fully resolved job as JSON text, with the contract's names, and back. Throws InputError.
std::string job_to_json(const Job& job);
Job job_from_json(std::string_view text, const std::string& source);

/// The fully resolved job as a job file (YAML). A GPU and links of the catalogue are named, others
/// written out.
std::string job_to_yaml(const Job& job, const Hardware& hardware);

}  // namespace shardplan
