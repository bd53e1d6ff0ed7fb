#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "planner/torch/tensor.h"

namespace shardplan::torch {

using Tensors = std::vector<Tensor>;
/// Gradients of a node's inputs from those of its outputs; a tensor that is not there is zero.
using Backward = std::function<Tensors(Tensors)>;

/// A node of the graph of backward.
struct Node {
  std::string name;
  int unit = -1;
  std::int64_t sequence = 0;  // later ones run first
  Backward backward;          // holds what was saved for it, and goes when it has run
  struct Edge {
    Node* node = nullptr;
    int output = 0;
    Dtype dtype = Dtype::Float32;  // of the input, and so of its gradient
  };
  std::vector<Edge> next;                        // where gradients of inputs go, by input
  std::vector<std::function<void()>> pre_hooks;  // Tensor.register_hook of its outputs
  Tensors received;                              // by output
  int missing = 0;                               // nodes that have not yet sent theirs
};

/// PyTorch's autograd engine for one device: what runs when, and how long gradients live.
class Graph {
 public:
  enum class Sums {
    InPlace,     // a gradient nobody else holds is added to
    OutOfPlace,  // always a new tensor: so it is for subclasses of Tensor, fake tensors among them
  };
  Graph(Host& host, Sums sums) : host_(host), sums_(sums) {}

  /// A node whose backward sends gradients to the makers of `inputs`.
  Node& add(std::string name, const Tensors& inputs, std::size_t outputs, Backward backward);
  /// A node that a leaf's gradients end at; it runs as soon as it has all of them. Stays.
  Node& add_leaf(std::string name, int unit, std::function<void(Tensor)> accumulate);

  /// Where nodes that are added from here on begin.
  std::size_t mark() const { return nodes_.size(); }
  /// Runs backward from `root`, and forgets all nodes since `mark` but leaves.
  void backward(const Tensor& root, Tensor gradient, std::size_t mark = 0);

 private:
  static constexpr std::int64_t kFirst = std::numeric_limits<std::int64_t>::max();

  void count_missing(Node* root);
  void run(Node& node);
  void send(const Node& from, const Node::Edge& edge, Tensor gradient);
  Tensor cast(const Node& from, const Tensor& gradient, Dtype dtype);
  void add_to(Node& node, int output, Tensor gradient);

  Host& host_;
  Sums sums_;
  std::int64_t sequence_ = 0;
  std::deque<Node> nodes_;
  std::deque<Node> leaves_;
  std::vector<Node*> ready_;  // a heap
};

}  // namespace shardplan::torch
