#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "plans/error.h"
#include "plans/units.h"

namespace shardplan {

/// Texts of jobs, catalogues and model configs are refused when longer, before they are parsed.
constexpr std::size_t kLargestText = 4 << 20;  // bytes

struct Entry;

/// A value of a YAML or JSON text and the place where it stands.
struct Node {
  enum class Kind {
    Null,
    Plain,   // a number, true, false or a bare word
    Quoted,  // text in quotes
    Sequence,
    Mapping
  } kind = Kind::Null;
  std::string text;            // Plain and Quoted
  std::vector<Node> items;     // Sequence
  std::vector<Entry> entries;  // Mapping, in the text's order, no key twice
  std::string where;           // "job.yaml:3:7", "config.json: /rope_scaling" or "--set a.b=c"

  bool is_scalar() const { return kind == Kind::Plain || kind == Kind::Quoted; }
};

struct Entry {
  std::string key;
  std::string where;
  Node value;
};

/// The one document of a YAML text. Anchors, aliases and tags are refused, and so are more than 64
/// levels or 100,000 values. `source` names the text in places. Throws InputError.
Node parse_yaml(std::string_view text, const std::string& source);
/// How places of a JSON text are told: "/rope_scaling/factor", or line and column as in YAML.
enum class JsonPlaces { Pointers, Lines };

/// The same for JSON.
Node parse_json(std::string_view text, const std::string& source,
                JsonPlaces places = JsonPlaces::Pointers);

/// The content of a text file. Throws InputError when it cannot be read or is longer.
std::string read_text(const std::string& path, std::size_t most_bytes = kLargestText);

/// Throws InputError "<place of the node>: <message>".
[[noreturn]] void fail(const Node& node, std::string_view message);

/// Runs `make`, and adds the place to the InputError that it throws.
template <typename Make>
auto located(const std::string& where, Make make) {
  try {
    return make();
  } catch (const InputError& error) {
    throw InputError(where + ": " + error.what());
  }
}
template <typename Make>
auto located(const Node& node, Make make) {
  return located(node.where, std::move(make));
}

constexpr double kNoLimit = std::numeric_limits<double>::max();

/// Values of scalars; `name` is the field's name in messages. Bounds are inclusive, numbers finite.
bool boolean_of(const Node& node, std::string_view name);
std::string text_of(const Node& node, std::string_view name);
double real_of(const Node& node, std::string_view name, double least, double most);
std::int64_t integer_of(const Node& node, std::string_view name, std::int64_t least,
                        std::int64_t most);
/// The texts of a sequence of scalars.
std::vector<std::string> texts_of(const Node& node, std::string_view name);

/// The fields of a mapping by name. Every key asked for is a known one.
class Fields {
 public:
  /// Null counts as an empty mapping. `path` is the mapping's name in messages, e.g.
  /// "training.optimizer". The node must outlive this. Throws InputError unless a mapping.
  Fields(const Node& mapping, std::string path);

  /// The mapping's place; where it is absent, the one that it would be in.
  const std::string& place() const { return where_; }
  /// Throws InputError at the mapping's place; where it is absent, at the one it would be in.
  [[noreturn]] void fail(std::string_view message) const;
  /// "training.optimizer.lr".
  std::string name_of(std::string_view key) const;

  /// The value of `key`, null or not; nullptr when absent.
  const Node* find_any(std::string_view key);
  /// The value of `key`; nullptr when absent or null.
  const Node* find(std::string_view key);
  /// The mapping at `key`, empty when absent.
  Fields section(std::string_view key);

  /// Each sets `value` when the key is there and not null.
  void read(std::string_view key, bool& value);
  void read(std::string_view key, std::string& value);
  void read(std::string_view key, double& value, double least = -kNoLimit, double most = kNoLimit);
  template <std::integral Integer>
  void read(std::string_view key, Integer& value, std::int64_t least, std::int64_t most) {
    if (const Node* node = find(key))
      value = static_cast<Integer>(integer_of(*node, name_of(key), least, most));
  }

  /// Entries that nobody asked for, and the names asked for.
  std::vector<const Entry*> unread() const;
  const std::vector<std::string>& known() const { return known_; }

  /// Throws InputError with the nearest known key at the first key that nobody asked for.
  void refuse_unknown() const;

 private:
  Fields(const Node& mapping, std::string path, std::string where);

  const Node* node_;
  std::string path_;
  std::string where_;
  std::vector<std::string> known_;
};

/// Reads an enumerator, when the key is there and not null, with the function that knows its names.
template <typename Enum>
void read_name(Fields& fields, std::string_view key, Enum& value, Enum (*from)(std::string_view)) {
  const Node* node = fields.find(key);
  if (node == nullptr) return;
  const std::string text = text_of(*node, fields.name_of(key));
  value = located(*node, [&] { return from(text); });
}

}  // namespace shardplan
