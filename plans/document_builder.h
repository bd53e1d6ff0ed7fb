#pragma once

#include <set>
#include <string>
#include <vector>

#include "plans/document.h"

namespace shardplan {

/// Builds the tree of a document from a parser's events, and bounds its depth and its size while
/// it grows. Every function throws InputError at the place of the value it is given.
class DocumentBuilder {
 public:
  /// A scalar, or null. In a mapping every second one is a key.
  void add(Node node);
  /// `node` is an empty sequence or mapping, which the values up to its end() belong to.
  void begin(Node node);
  void end();

  /// JSON pointer of the value that comes next.
  std::string pointer() const;
  bool complete() const { return complete_; }
  Node take() { return std::move(root_); }

 private:
  struct Frame {
    Node node;
    bool expects_key = false;
    std::string key;
    std::string key_where;
    std::set<std::string> keys;
  };
  void add_key(const Node& node);
  void add_value(Node node);
  void count(const Node& node);

  std::vector<Frame> open_;
  std::size_t nodes_ = 0;
  Node root_;
  bool complete_ = false;
};

}  // namespace shardplan
