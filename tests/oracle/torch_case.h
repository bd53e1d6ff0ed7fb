#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plans/job.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan::oracle {

/// The model of a reference file's `models`: its dimensions, as a config.json.
ModelGraph torch_model(const nlohmann::json& dimensions);

/// The job that a reference case's `config` means. Throws InputError for what cannot be expressed.
Job torch_job(const nlohmann::json& config, const ModelGraph& graph);

/// The plan of PyTorch on fake CPU tensors, as which the case was recorded.
Plan torch_plan(const nlohmann::json& config, const ModelGraph& graph);

}  // namespace shardplan::oracle
