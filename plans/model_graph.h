#pragma once

#include <boost/graph/adjacency_list.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plans/operators.h"
#include "plans/parameter.h"
#include "plans/units.h"

namespace shardplan {

/// One vertex: an operator that produces one tensor.
struct Operator {
  OperatorKind kind = OperatorKind::Input;
  std::string module;           // path of the module that runs it, e.g. "model.layers.3.mlp"
  Attributes attributes;        // constants of the operator (features, heads, epsilon, ...)
  std::vector<int> parameters;  // indices into ModelGraph::parameters, in the catalogue's order
  TensorType output;
};

/// The slot of the consumer that an edge feeds.
struct InputSlot {
  int index = 0;
};

using OperatorDag =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Operator, InputSlot>;

struct Module {
  std::string path;        // "model.layers.0"; "" is the root
  std::string class_name;  // "LlamaDecoderLayer"
};

/// A model as a directed acyclic graph of operators. Vertices are added in execution order.
struct ModelGraph {
  std::string family;                      // "llama"
  std::vector<std::string> block_classes;  // what the transformer wrap policy wraps by default
  OperatorDag dag;
  std::vector<Parameter> parameters;
  std::vector<Module> modules;
  Bytes buffers_bytes = 0;           // non-trainable state of the Hugging Face model
  std::vector<std::string> remarks;  // what the config asks for and the graph leaves out

  int add_parameter(Parameter parameter);
  /// Adds an operator fed by `inputs` (vertices), infers its output type and returns its vertex.
  /// Throws InputError when shapes do not fit.
  int add(Operator op, const std::vector<int>& inputs);
  /// Vertices that feed `vertex`, by slot.
  std::vector<int> inputs_of(int vertex) const;

  /// Throws InputError when they are more than kMostElements.
  std::int64_t parameter_count() const;
  /// Tokens of the longest sequence that all learned position tables cover; none: there are none.
  std::optional<std::int64_t> most_positions() const;
};

}  // namespace shardplan
