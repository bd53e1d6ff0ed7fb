#pragma once

#include <vector>

#include "planner/passes/wrap.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan {

/// Where each parameter lives, by ModelGraph::parameters.
struct ParameterPlace {
  int unit = -1;
  std::int64_t at = 0;  // elements from the begin of the unit's whole parameters
  std::int64_t elems = 0;
};

/// Cuts every unit's parameters into shards. Those that are trained come first; with weight decay
/// on matrices only, matrices come before the rest. The layout `flat` (FSDP1's FlatParameter with
/// use_orig_params) makes one slice of what is alike in these: parameters one after the other, each
/// padded to 16 bytes, the whole padded to a multiple of the shard group. `per_parameter` (FSDP2)
/// makes a slice of every parameter: ceil(rows / group) rows for each rank, so that the last ranks
/// have fewer or none. Fills Plan::units (buffers excepted) and Plan::classes from Plan::mesh;
/// returns every parameter's place.
std::vector<ParameterPlace> lay_out(Plan& plan, const ModelGraph& graph,
                                    const std::vector<ParameterGroup>& groups);

/// The parts of [0, elems) of a unit's whole parameters that belong to no parameter, as {at,
/// elems}.
std::vector<std::pair<std::int64_t, std::int64_t>> padding_of(const Unit& unit, std::int64_t elems);

}  // namespace shardplan
