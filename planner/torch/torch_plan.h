#pragma once

#include <optional>
#include <vector>

#include "planner/passes/wrap.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan::torch {

/// What of a PyTorch process no job says.
struct Setup {
  bool fake = false;           // FakeTensorMode, which reference figures come from
  bool cpu = false;            // with fake tensors: of a CPU
  bool transformers = true;    // its modeling code; false: minimal models that fuse GELU and drop
                               // narrow logits once they have a float32 copy
  bool use_cache = false;      // transformers' models copy keys and values into a cache
  bool loss_in_model = true;   // false: the training loop's, of what the wrapped root returns
  bool compiles_loss = false;  // with profile torch-compile, as a graph of its own
  bool keeps_logits = false;   // in float32, to the end of backward
  std::optional<Dtype> autocast = std::nullopt;  // torch.autocast around FSDP
};

/// Plans a job as PyTorch's engine executes it in eager mode: what its host issues, in its order,
/// with every allocation and free. `plan` has job, profile, mesh and units, those of `groups`. The
/// waits that its data needs are synchronise()'s. Throws InputError for what is not modelled.
void schedule(Plan& plan, const ModelGraph& model, const std::vector<ParameterGroup>& groups,
              const Setup& setup);

}  // namespace shardplan::torch
