#pragma once

#include <nlohmann/json_fwd.hpp>

#include "plans/plan.h"

namespace shardplan::oracle {

/// The plan of a reference case's `config`. Throws InputError for what cannot be expressed.
Plan deepspeed_plan(const nlohmann::json& config);

}  // namespace shardplan::oracle
