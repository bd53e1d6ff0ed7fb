#include "planner/torch/graph.h"

#include <algorithm>
#include <set>
#include <utility>

namespace shardplan::torch {
namespace {

bool runs_later(const Node* a, const Node* b) { return a->sequence < b->sequence; }

}  // namespace

Node& Graph::add(std::string name, const Tensors& inputs, std::size_t outputs, Backward backward) {
  Node& node = nodes_.emplace_back();
  node.name = std::move(name);
  node.unit = host_.unit();
  node.sequence = sequence_++;
  node.backward = std::move(backward);
  for (const Tensor& input : inputs)
    node.next.push_back(input.requires_grad ? Node::Edge{input.node, input.output, input.dtype}
                                            : Node::Edge{});
  node.received.resize(outputs);
  return node;
}

Node& Graph::add_leaf(std::string name, int unit, std::function<void(Tensor)> accumulate) {
  Node& node = leaves_.emplace_back();
  node.name = std::move(name);
  node.unit = unit;
  node.sequence = kFirst;
  node.backward = [accumulate = std::move(accumulate)](Tensors gradients) -> Tensors {
    accumulate(std::move(gradients.front()));
    return {};
  };
  node.received.resize(1);
  return node;
}

void Graph::count_missing(Node* root) {
  std::set<Node*> seen{root};
  std::vector<Node*> open{root};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    for (const Node::Edge& edge : node->next) {
      if (edge.node == nullptr) continue;
      ++edge.node->missing;
      if (seen.insert(edge.node).second) open.push_back(edge.node);
    }
  }
}

void Graph::backward(const Tensor& root, Tensor gradient, std::size_t mark) {
  count_missing(root.node);
  add_to(*root.node, root.output, std::move(gradient));
  ready_.push_back(root.node);
  while (!ready_.empty()) {
    std::ranges::pop_heap(ready_, runs_later);
    Node& node = *ready_.back();
    ready_.pop_back();
    host_.enter_unit(node.unit);
    run(node);
  }
  host_.enter_unit(-1);
  nodes_.resize(mark);
}

void Graph::run(Node& node) {
  for (const auto& hook : node.pre_hooks)
    hook();
  const bool any = std::ranges::any_of(node.received, [](const Tensor& t) { return bool(t); });
  const bool leaf = node.sequence == kFirst;
  Tensors received = std::exchange(node.received, Tensors(node.received.size()));
  Tensors sent(node.next.size());
  if (any) sent = node.backward(std::move(received));
  host_.enter_unit(node.unit);
  for (std::size_t i = 0; i < node.next.size(); ++i)
    if (node.next[i].node != nullptr && sent[i] && sent[i].dtype != node.next[i].dtype)
      sent[i] = cast(node, sent[i], node.next[i].dtype);
  if (!leaf) node.backward = nullptr;
  for (std::size_t i = 0; i < node.next.size(); ++i)
    if (node.next[i].node != nullptr) send(node, node.next[i], std::move(sent[i]));
}

void Graph::send(const Node& from, const Node::Edge& edge, Tensor gradient) {
  host_.enter_unit(from.unit);
  if (gradient) add_to(*edge.node, edge.output, std::move(gradient));
  if (--edge.node->missing > 0) return;
  ready_.push_back(edge.node);
  std::ranges::push_heap(ready_, runs_later);
}

/// A gradient has the dtype of its tensor, whatever a formula gives (validate_outputs).
Tensor Graph::cast(const Node& from, const Tensor& gradient, Dtype dtype) {
  Tensor result{.storage = nullptr, .elems = gradient.elems, .dtype = dtype};
  result.storage = host_.allocate({.name = from.name + ".grad.to",
                                   .category = Category::Temporaries,
                                   .elems = gradient.elems,
                                   .dtype = dtype});
  host_.issue(from.name + ".grad.to", Stream::Compute, Compute{Kernel::Elementwise, {}},
              {gradient.view()}, {result.view()});
  return result;
}

void Graph::add_to(Node& node, int output, Tensor gradient) {
  Tensor& sum = node.received[output];
  if (!sum) {
    sum = std::move(gradient);
    return;
  }
  const bool in_place = sums_ == Sums::InPlace && sum.storage.use_count() == 1;
  Tensor result = sum;
  if (!in_place)
    result.storage =
        host_.allocate({.name = node.name + ".sum",
                        .category = host_.plan().buffers[sum.storage->buffer()].category,
                        .elems = sum.elems,
                        .dtype = sum.dtype});
  if (!in_place) result.at = 0;
  host_.issue(node.name + ".add", Stream::Compute, Compute{Kernel::Add, {}},
              {sum.view(), gradient.view()}, {result.view()});
  sum = std::move(result);
}

}  // namespace shardplan::torch
