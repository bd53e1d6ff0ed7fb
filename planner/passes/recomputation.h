#pragma once

#include <string>
#include <vector>

#include "plans/job.h"
#include "plans/model_graph.h"

namespace shardplan {

/// Paths of the model's blocks: the modules of ModelGraph::block_classes, in the order of the
/// model.
std::vector<std::string> block_modules(const ModelGraph& graph);

/// Which results of forward are not kept for backward (activation checkpointing). `full`: those of
/// every operator inside a block; `every`: inside the last of each so many blocks; `selective`: of
/// operators of the kinds named, inside all blocks, every second one of a kind in each block, as
/// torchtitan does with products, or all inside modules of some names, as Megatron-LM's
/// recompute_modules. What leaves a block is always kept.
class Recomputation {
 public:
  /// Throws InputError when the model has no blocks to compute again, or no module of the names.
  Recomputation(const ModelGraph& graph, const ActivationCheckpointing& checkpointing);

  /// Statistics of `vertex` are computed again, and its output unless that is kept.
  bool again(int vertex) const { return again_[vertex]; }
  /// The output of `vertex` stays from forward to backward.
  bool keeps_output(int vertex) const { return keeps_output_[vertex]; }

 private:
  std::vector<bool> again_;         // by vertex
  std::vector<bool> keeps_output_;  // by vertex
};

}  // namespace shardplan
