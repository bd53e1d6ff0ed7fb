#pragma once

#include <string>
#include <vector>

#include "plans/model_graph.h"

namespace shardplan {

/// Sets Parameter::trainable: of those alone that a pattern names. A pattern (`*`: any text, `?`:
/// any character) names a parameter or a module with all that is in it, by the whole path or by its
/// last components: "lm_head", "q_proj", "model.layers.3*", "*.bias". Throws InputError for a
/// pattern that names nothing.
void choose_trainable(ModelGraph& graph, const std::vector<std::string>& patterns);

/// Whether `text` is what the pattern stands for.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace shardplan
