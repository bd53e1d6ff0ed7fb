#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plans/job.h"

namespace shardplan {

/// The strategy of that name, if it can be planned; `where` names the place in errors. Throws
/// InputError.
Strategy strategy_named(const std::string& where, const std::string& name);

/// What --strategies of a command names, each once. Throws InputError.
std::vector<Strategy> strategies_named(std::string_view command,
                                       const std::vector<std::string>& names);

/// What a job is planned under when nothing is named: DDP, SHARD_GRAD_OP, FULL_SHARD, and where
/// there are several nodes HYBRID_SHARD; of engine deepspeed DDP, ZERO_1, ZERO_2 and ZERO_3.
std::vector<Strategy> usual_strategies(const Job& job, bool several_nodes);

}  // namespace shardplan
