#pragma once

#include <vector>

#include "planner/passes/wrap.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan {

/// Where each parameter lives, by ModelGraph::parameters.
struct ParameterPlace {
  int unit = -1;
  std::int64_t at = 0;  // elements from the start of the unit's flat parameter
  std::int64_t elems = 0;
};

/// The flat layout (FSDP1's FlatParameter with use_orig_params): parameters one after the other,
/// each padded to 16 bytes, the whole padded to a multiple of the shard group and cut into equal
/// shards. Fills Plan::units (buffers excepted) and Plan::classes from Plan::mesh; returns every
/// parameter's place.
std::vector<ParameterPlace> lay_out(Plan& plan, const ModelGraph& graph,
                                    const std::vector<ParameterGroup>& groups);

/// The parts of a unit's flat parameter that belong to no parameter, as {at, elems}.
std::vector<std::pair<std::int64_t, std::int64_t>> padding_of(const Unit& unit);

}  // namespace shardplan
