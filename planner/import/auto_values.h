#pragma once

#include <string>

#include "planner/import/imported.h"
#include "plans/document.h"

namespace shardplan::importing {

/// True for DeepSpeed's placeholder, which the trainer of transformers fills.
bool is_auto(const Node& node);

/// The rule by which `key` ("zero_optimization.reduce_bucket_size") gets its value; empty when the
/// trainer leaves it alone. (integrations/deepspeed.py of transformers 5.24.)
std::string auto_rule(const std::string& key);

/// A copy of the document without what is "auto": the sizes that follow from
/// ImportOptions::hidden_size get their values, all else is left open in `imported`.
Node without_auto(const Node& document, const ImportOptions& options, Imported& imported);

}  // namespace shardplan::importing
