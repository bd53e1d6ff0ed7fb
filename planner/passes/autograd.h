#pragma once

#include <string>
#include <vector>

#include "plans/job.h"
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
  std::int64_t at = 0;
  std::int64_t elems = kAll;  // of a value, from element `at` on

  static constexpr std::int64_t kAll = -1;
  bool operator==(const TapeOperand&) const = default;
};

/// One kernel launch; an operand that is added to stands behind the kernel's own reads too.
struct TapeLaunch {
  Kernel kernel = Kernel::Add;
  Attributes attributes;
  int vertex = -1;             // of the operator it belongs to
  bool recomputation = false;  // runs a forward kernel again, in backward
  std::vector<TapeOperand> reads;
  std::vector<TapeOperand> writes;
};

/// What the batch gives: the value and the Input operator that it comes from.
struct TapeInput {
  int vertex = -1;
  int value = -1;
};

/// Forward and backward of one micro-batch, in execution order.
struct Tape {
  std::vector<TapeValue> values;
  std::vector<TapeLaunch> forward;
  std::vector<TapeLaunch> backward;
  std::vector<TapeInput> inputs;
  int loss = -1;  // value
};

struct TapeSettings {
  Sizes sizes;
  Profile profile = Profile::CpuOneDnn;
  Dtype dtype = Dtype::Float32;  // of activations, their gradients and those of parameters
  double loss_scale = 1;
  int loss_chunks = 1;
  ActivationCheckpointing checkpointing;
};

/// Differentiates the graph in reverse order by the catalogue's gradient kernels, as far as trained
/// parameters need it. A value that backward reads is an activation; other values are temporaries.
/// What the checkpointing does not keep is computed again where backward first needs it, and only
/// if it does. The loss is computed in chunks of the tokens where there are to be several. Requires
/// that vertices 0 and 1 are the tokens and the targets and that the last one is the loss. Throws
/// InputError when nothing is trained.
Tape autograd(const ModelGraph& graph, const TapeSettings& settings);

}  // namespace shardplan
