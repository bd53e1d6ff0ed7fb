#include "planner/import/accelerate_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/import/import_parts.h"

namespace shardplan::importing {
namespace {

Node with_prefixed_keys(const Node* section, const std::string& name, std::string_view prefix) {
  Node result;
  if (section == nullptr) return result;
  result = *section;
  for (Entry& entry : result.entries)
    if (!entry.key.starts_with(prefix)) entry.key = fmt::format("{}_{}", prefix, entry.key);
  for (std::size_t i = 0; i < result.entries.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (result.entries[i].key == result.entries[j].key)
        throw InputError(fmt::format("{}: {}: '{}' is there twice, with and without '{}_'",
                                     result.entries[i].where, name, result.entries[i].key, prefix));
  return result;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

bool is_yaml_boolean(const Node& node, bool value) {
  if (node.kind != Node::Kind::Plain) return false;
  const std::string word = lower(node.text);
  return value ? is_one_of(word, {"yes", "true", "on"}) : is_one_of(word, {"no", "false", "off"});
}

AccelerateSection::AccelerateSection(const Node* section, std::string name, std::string_view prefix)
    : normalised_(with_prefixed_keys(section, name, prefix)),
      fields_(normalised_, std::move(name)) {}

bool AccelerateSection::truth(std::string_view key, bool otherwise) {
  const Node* node = fields_.find_any(key);
  if (node == nullptr) return otherwise;
  const std::string word = node->is_scalar() ? lower(node->text) : "";
  if (is_one_of(word, {"y", "yes", "t", "true", "on", "1"})) return true;
  if (is_one_of(word, {"n", "no", "f", "false", "off", "0"})) return false;
  fail(*node, fmt::format("{}: expected true or false, found {}", fields_.name_of(key),
                          node->is_scalar() ? "'" + node->text.substr(0, 60) + "'" : "no word"));
}

std::string AccelerateSection::text(std::string_view key, std::string_view otherwise) {
  const Node* node = fields_.find(key);
  return node == nullptr ? std::string(otherwise) : text_of(*node, fields_.name_of(key));
}

bool AccelerateSection::is_truthy(std::string_view key) {
  const Node* node = fields_.find_any(key);
  if (node == nullptr) return true;
  if (node->kind == Node::Kind::Null || is_yaml_boolean(*node, false)) return false;
  return node->kind == Node::Kind::Quoted ? !node->text.empty() : node->text != "0";
}

}  // namespace shardplan::importing
