#pragma once

#include <string>
#include <vector>

#include "planner/families/part.h"

namespace shardplan {

/// GPT-2's tree, which GPTBigCode and GPTNeo have too. `prefix` begins the class names: "GPT2".

/// Below the root: the tables, the blocks, the last norm and the head.
std::vector<Part> gpt2_model_parts(const std::string& prefix);
/// Below a block: `attention` and the MLP, a norm before each.
std::vector<Part> gpt2_block_parts(const std::string& prefix, Part attention);

}  // namespace shardplan
