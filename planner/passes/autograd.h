#pragma once

#include <string>
#include <vector>

#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan {

/// A tensor of the tape. Tensors that may share their bytes (in-place results, gradients that pass
/// through an addition) are one value.
struct TapeValue {
  std::string name;
  Dtype dtype = Dtype::Float32;
  std::int64_t elems = 0;
  Category category = Category::Temporaries;
};

struct TapeOperand {
  enum class Kind { Value, Parameter, ParameterGradient } kind = Kind::Value;
  int index = -1;  // into Tape::values or ModelGraph::parameters
  bool operator==(const TapeOperand&) const = default;
};

/// One kernel launch; an operand that is added to stands behind the kernel's own reads too.
struct TapeLaunch {
  Kernel kernel = Kernel::Add;
  Attributes attributes;
  int vertex = -1;  // of the operator it belongs to
  std::vector<TapeOperand> reads;
  std::vector<TapeOperand> writes;
};

/// Forward and backward of one micro-batch, in execution order.
struct Tape {
  std::vector<TapeValue> values;
  std::vector<TapeLaunch> forward;
  std::vector<TapeLaunch> backward;
  int tokens = -1;  // values
  int targets = -1;
  int loss = -1;
};

/// Differentiates the graph in reverse order by the catalogue's gradient kernels. A value that
/// backward reads is an activation; other values are temporaries. Requires that vertices 0 and 1
/// are the tokens and the targets and that the last one is the loss.
Tape autograd(const ModelGraph& graph, Sizes sizes, Profile profile);

}  // namespace shardplan
