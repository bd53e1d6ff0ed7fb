#pragma once

#include <map>
#include <string>
#include <string_view>

#include "planner/torch/aten.h"
#include "plans/model_graph.h"

namespace shardplan::torch {

/// What an operator's forward works with.
struct ForwardCall {
  const Operator& op;
  Tensors inputs;            // by slot
  Tensors parameters;        // in the catalogue's order
  Tensors tables;            // cosines and sines, where it rotates
  Attributes sizes;          // the operator's, with Batch and Time
  std::string_view family;   // of transformers' modeling code; none: a minimal model
  std::string module_class;  // of the operator's module
  bool dropout = false;      // GPT-2 drops elements
  bool eager = false;        // attention one operator at a time; else sdpa
  Tensor mask;               // of attention; none: it is causal
  Tensors* cache = nullptr;  // takes keys and values; none: there is no cache
};

/// The operator as Hugging Face's modeling code writes it in PyTorch. Throws InputError for one
/// that is not modelled yet.
Tensor forward(Aten& aten, ForwardCall& call);

/// Whether forward() knows the operator.
bool is_modelled(OperatorKind kind);

/// Cosines and sines of all positions, in `dtype`: what transformers' rotary embeddings make once
/// per forward.
Tensors rotary_tables(Aten& aten, const Operator& rope, std::int64_t time, Dtype dtype);

}  // namespace shardplan::torch
