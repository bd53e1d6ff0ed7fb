#include "planner/passes/recomputation.h"

#include <algorithm>

#include "planner/passes/wrap.h"
#include "plans/error.h"

namespace shardplan {
namespace {

using Kind = ActivationCheckpointing::Kind;

bool computes_again(const ActivationCheckpointing& checkpointing, int block, OperatorKind kind) {
  if (block < 0) return false;
  switch (checkpointing.kind) {
    case Kind::None: return false;
    case Kind::Full: return true;
    case Kind::Every: return (block + 1) % checkpointing.every == 0;
    case Kind::Selective:
      return std::ranges::find(checkpointing.operators, kind) != checkpointing.operators.end();
  }
  return false;
}

}  // namespace

std::vector<std::string> block_modules(const ModelGraph& graph) {
  std::vector<std::string> blocks;
  for (const Module& module : graph.modules)
    if (std::ranges::find(graph.block_classes, module.class_name) != graph.block_classes.end())
      blocks.push_back(module.path);
  return blocks;
}

Recomputation::Recomputation(const ModelGraph& graph, const ActivationCheckpointing& checkpointing)
    : again_(boost::num_vertices(graph.dag), false),
      keeps_output_(boost::num_vertices(graph.dag), true) {
  if (checkpointing.kind == Kind::None) return;
  const std::vector<std::string> blocks = block_modules(graph);
  if (blocks.empty())
    throw FieldError("training.activation_checkpointing",
                     "the model has no blocks whose results could be "
                     "computed again");
  std::vector<int> block_of;
  for (std::size_t vertex = 0; vertex < again_.size(); ++vertex) {
    block_of.push_back(deepest_containing(blocks, graph.dag[vertex].module));
    again_[vertex] = computes_again(checkpointing, block_of.back(), graph.dag[vertex].kind);
  }
  for (std::size_t vertex = 0; vertex < again_.size(); ++vertex) {
    if (!again_[vertex]) continue;
    keeps_output_[vertex] = false;
    for (const auto edge : boost::make_iterator_range(boost::out_edges(vertex, graph.dag)))
      if (block_of[boost::target(edge, graph.dag)] != block_of[vertex])
        keeps_output_[vertex] = true;
  }
}

}  // namespace shardplan
