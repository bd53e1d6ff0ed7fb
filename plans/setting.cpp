#include "plans/setting.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardplan {
namespace {

void set_place(Node& node, const std::string& where) {
  node.where = where;
  for (Node& item : node.items)
    set_place(item, where);
  for (Entry& entry : node.entries) {
    entry.where = where;
    set_place(entry.value, where);
  }
}

/// The value of `key` in a mapping, made when it is not there.
Node& child(Node& mapping, const std::string& key, const std::string& where) {
  mapping.kind = Node::Kind::Mapping;
  const auto found = std::ranges::find(mapping.entries, key, &Entry::key);
  if (found != mapping.entries.end()) return found->value;
  mapping.entries.push_back({key, where, Node{}});
  mapping.entries.back().value.where = where;
  return mapping.entries.back().value;
}

}  // namespace

void apply_setting(Node& document, const Setting& setting) {
  const auto& [text, where] = setting;
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError(where + ": expected field=value, e.g. training.micro_batch=2");
  const std::string path = text.substr(0, equals);
  Node* node = &document;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find('.', begin), path.size());
    if (node->kind != Node::Kind::Mapping && node->kind != Node::Kind::Null)
      throw InputError(fmt::format("{}: '{}' has no fields", where,
                                   path.substr(0, std::max<std::size_t>(begin, 1) - 1)));
    node = &child(*node, path.substr(begin, end - begin), where);
    begin = end + 1;
  }
  *node = parse_yaml(text.substr(equals + 1), where);
  set_place(*node, where);
}

}  // namespace shardplan
