#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// The optimizer's state of every parameter, put together from the parts that ranks hold:
/// "name.exp_avg", "name.exp_avg_sq" or "name.momentum_buffer" -> values in the parameter's order.
/// `values_of(rank, view)` gives a rank's float32 operand.
std::map<std::string, std::vector<float>> collect_optimizer_state(
    const Plan& plan,
    const std::function<std::span<const float>(std::int64_t rank, const View& view)>& values_of);

}  // namespace shardplan
