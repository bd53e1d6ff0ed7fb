#include "planner/passes/recomputation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "planner/passes/wrap.h"
#include "plans/error.h"

namespace shardplan {
namespace {

using Kind = ActivationCheckpointing::Kind;

/// Whether a component of `path` behind `block` is one of `names`.
bool lies_in(const std::vector<std::string>& names, const std::string& block,
             const std::string& path) {
  const std::string inside = path.substr(block.size()) + ".";
  return std::ranges::any_of(names, [&](const std::string& name) {
    return inside.find("." + name + ".") != std::string::npos;
  });
}

/// `nth`: of its kind in the block, from 1 on.
bool computes_again(const ActivationCheckpointing& checkpointing, int block, OperatorKind kind,
                    int nth) {
  const auto names = [&](const std::vector<OperatorKind>& kinds) {
    return std::ranges::find(kinds, kind) != kinds.end();
  };
  switch (checkpointing.kind) {
    case Kind::None: return false;
    case Kind::Full: return true;
    case Kind::Every: return (block + 1) % checkpointing.every == 0;
    case Kind::Selective:
      return names(checkpointing.operators) || (nth % 2 == 0 && names(checkpointing.every_second));
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
  bool any_named = false;
  std::map<std::pair<int, OperatorKind>, int> seen;  // operators of a kind in a block
  for (std::size_t vertex = 0; vertex < again_.size(); ++vertex) {
    const OperatorKind kind = graph.dag[vertex].kind;
    const int block = deepest_containing(blocks, graph.dag[vertex].module);
    block_of.push_back(block);
    if (block < 0) continue;
    const bool named = lies_in(checkpointing.modules, blocks[block], graph.dag[vertex].module);
    again_[vertex] = named || computes_again(checkpointing, block, kind, ++seen[{block, kind}]);
    any_named = any_named || named;
  }
  if (!checkpointing.modules.empty() && !any_named)
    throw FieldError(
        "training.activation_checkpointing.modules",
        fmt::format("no block has a module {}", fmt::join(checkpointing.modules, " or ")));
  for (std::size_t vertex = 0; vertex < again_.size(); ++vertex) {
    if (!again_[vertex]) continue;
    keeps_output_[vertex] = false;
    for (const auto edge : boost::make_iterator_range(boost::out_edges(vertex, graph.dag)))
      if (block_of[boost::target(edge, graph.dag)] != block_of[vertex])
        keeps_output_[vertex] = true;
  }
}

}  // namespace shardplan
