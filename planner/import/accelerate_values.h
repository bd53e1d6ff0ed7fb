#pragma once

#include <map>
#include <string>
#include <string_view>

#include "plans/document.h"

namespace shardplan::importing {

/// A section of an accelerate file as its launcher takes it: each key becomes a command-line
/// argument, with `prefix` put in front where it lacks it.
class AccelerateSection {
 public:
  /// `section` is null, or a mapping that outlives this. Throws InputError for two keys that become
  /// one argument.
  AccelerateSection(const Node* section, std::string name, std::string_view prefix);

  Fields& fields() { return fields_; }
  const Node* find_any(std::string_view key) { return fields_.find_any(key); }

  /// The values that accelerate reads as text: y, yes, t, true, on, 1 and their opposites, in any
  /// case. Absent: `otherwise`. Null is none of them, so an error, as in accelerate.
  bool truth(std::string_view key, bool otherwise);
  /// The text of the value; absent: `otherwise`.
  std::string text(std::string_view key, std::string_view otherwise);
  /// What Python takes for true without looking at the words: a text that is not empty, also
  /// "false" in quotes. Absent: true, because the arguments' defaults are texts.
  bool is_truthy(std::string_view key);

 private:
  Node normalised_;
  Fields fields_;
};

/// True when the plain scalar is one of YAML 1.1's words for the boolean `value`.
bool is_yaml_boolean(const Node& node, bool value);

}  // namespace shardplan::importing
