#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plans/job.h"
#include "plans/model_graph.h"

namespace shardplan {

/// Path of the config.json that a job's model is read from: a preset's, or the user's.
std::string config_path(const ModelJob& model);

/// The graph of the model a job names, with its adapters, and what is trained of it. `layers`
/// replaces the config's number of blocks. Throws InputError for an unknown family or a config that
/// makes no sense.
ModelGraph build_model(const ModelJob& model, std::optional<int> layers = std::nullopt);

/// The graph with the job's adapters, and what is trained of it.
ModelGraph adapted(ModelGraph graph, const ModelJob& model);

/// The graph of a Hugging Face config.json. `source` names it in errors; `as_family` reads it as of
/// that model_type, whatever it says.
ModelGraph model_from_config(std::string_view config_json, const std::string& source,
                             std::optional<bool> tie_word_embeddings = std::nullopt,
                             std::optional<int> layers = std::nullopt,
                             const std::string& as_family = {});

}  // namespace shardplan
