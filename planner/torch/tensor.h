#pragma once

#include <cstdint>

#include "planner/torch/host.h"

namespace shardplan::torch {

struct Node;

/// A tensor: elements of a storage, and the node of the graph that its gradient goes to.
struct Tensor {
  StoragePtr storage;  // none: not computed (an early stop), or not a tensor at all
  std::int64_t at = 0;
  std::int64_t elems = 0;
  Dtype dtype = Dtype::Float32;
  bool requires_grad = false;
  Node* node = nullptr;
  int output = 0;     // which of the node's outputs
  bool kept = false;  // in a checkpointed region: it is not computed again

  explicit operator bool() const { return elems > 0; }
  View view() const { return {storage->buffer(), at, elems}; }
};

/// `elems` of the tensor's elements from `at` on, in the same storage.
inline Tensor narrow(const Tensor& tensor, std::int64_t at, std::int64_t elems) {
  Tensor part = tensor;
  part.at += at;
  part.elems = elems;
  return part;
}

}  // namespace shardplan::torch
