#pragma once

#include <string>
#include <string_view>

#include "plans/model_graph.h"

namespace shardplan {

/// The graph of a graph YAML (docs/graph.md): parameters, modules and operators of the catalogue,
/// with repeated parts. `source` names it in errors. Throws InputError with line and column for
/// what is unknown, does not fit or is too large.
ModelGraph read_graph(std::string_view yaml, const std::string& source);

}  // namespace shardplan
