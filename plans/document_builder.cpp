#include "plans/document_builder.h"

#include <fmt/format.h>

#include <utility>

namespace shardplan {
namespace {

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kMostNodes = 100'000;

}  // namespace

void DocumentBuilder::count(const Node& node) {
  if (++nodes_ > kMostNodes) fail(node, fmt::format("more than {} values", kMostNodes));
}

void DocumentBuilder::add(Node node) {
  count(node);
  if (!open_.empty() && open_.back().expects_key)
    add_key(node);
  else
    add_value(std::move(node));
}

void DocumentBuilder::begin(Node node) {
  count(node);
  if (!open_.empty() && open_.back().expects_key)
    fail(node, fmt::format(
                   "expected a key, which is a single word, found {} (or a bracket is not closed)",
                   node.kind == Node::Kind::Mapping ? "a mapping" : "a list"));
  if (open_.size() == kDeepest) fail(node, fmt::format("nested more than {} deep", kDeepest));
  Frame frame;
  frame.expects_key = node.kind == Node::Kind::Mapping;
  frame.node = std::move(node);
  open_.push_back(std::move(frame));
}

void DocumentBuilder::end() {
  Node node = std::move(open_.back().node);
  open_.pop_back();
  add_value(std::move(node));
}

void DocumentBuilder::add_key(const Node& node) {
  Frame& frame = open_.back();
  if (!node.is_scalar()) fail(node, "expected a key, which is a single word, found nothing");
  if (!frame.keys.insert(node.text).second)
    fail(node, fmt::format("the key '{}' is there twice", node.text));
  frame.key = node.text;
  frame.key_where = node.where;
  frame.expects_key = false;
}

void DocumentBuilder::add_value(Node node) {
  if (open_.empty()) {
    root_ = std::move(node);
    complete_ = true;
    return;
  }
  Frame& frame = open_.back();
  if (frame.node.kind == Node::Kind::Sequence) {
    frame.node.items.push_back(std::move(node));
    return;
  }
  frame.node.entries.push_back({std::move(frame.key), std::move(frame.key_where), std::move(node)});
  frame.expects_key = true;
}

std::string DocumentBuilder::pointer() const {
  std::string pointer;
  for (const Frame& frame : open_) {
    const bool sequence = frame.node.kind == Node::Kind::Sequence;
    if (!sequence && frame.expects_key) break;
    pointer += '/';
    pointer += sequence ? std::to_string(frame.node.items.size()) : frame.key;
  }
  return pointer;
}

}  // namespace shardplan
