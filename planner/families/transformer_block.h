#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/families/module_tree.h"

namespace shardplan {

/// Adds the function on rows of `channels`, run by the module at `path`.
int activate(ModelGraph& graph, const Activation& activation, const std::string& path,
             std::int64_t channels, int input);

/// Modules of a stack of blocks at `path` ("model.layers"), a list of `class_name`.
std::vector<Parts> declare_blocks(ModuleBuilder& modules, const std::string& path,
                                  const std::vector<Block>& blocks);

/// Runs the blocks on `hidden`; cross-attention reads `memory`. A relative position bias of the
/// first block serves all. Returns the last block's output.
int run_blocks(ModelGraph& graph, const std::vector<Block>& blocks, const std::vector<Parts>& parts,
               int hidden, int memory = -1);

}  // namespace shardplan
