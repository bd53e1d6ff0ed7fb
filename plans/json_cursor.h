#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plans/error.h"

namespace shardplan {

/// A place in a parsed JSON text. Every reader checks what it finds; what does not fit is an
/// InputError "source: /pointer/to/it: what is wrong, what was expected". Not part of the public
/// interface. Valid as long as its JsonDocument.
class JsonCursor {
 public:
  /// The member of an object. Throws when it is missing.
  JsonCursor at(std::string_view key) const;
  /// The same; empty when the member is missing or null.
  std::optional<JsonCursor> find(std::string_view key) const;
  /// Throws when the object has a member that is not among `keys`.
  void allow_only(std::span<const std::string_view> keys) const;
  void allow_only(std::initializer_list<std::string_view> keys) const {
    allow_only(std::span(keys.begin(), keys.size()));
  }

  std::vector<JsonCursor> elements() const;                              // of an array
  std::vector<std::pair<std::string_view, JsonCursor>> members() const;  // of an object, in order

  bool is_text() const;
  const std::string& text() const;
  bool boolean() const;
  double real() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  /// The value as JSON text.
  std::string dump() const;

  /// The enumerator, counted from 0 and fewer than `count`, whose to_string() stands here.
  template <typename Enum>
  Enum enumerator(int count) const {
    std::vector<std::string_view> names;
    for (int i = 0; i < count; ++i)
      names.push_back(to_string(static_cast<Enum>(i)));
    return static_cast<Enum>(index_in(names));
  }
  /// What `parse` makes of the text; its InputError gets this place.
  template <typename Value>
  Value parsed(Value (*parse)(std::string_view)) const {
    const std::string& word = text();
    try {
      return parse(word);
    } catch (const InputError& error) {
      fail(error.what());
    }
  }

  [[noreturn]] void fail(std::string_view what_is_wrong) const;
  /// fail() for a name that is not among `candidates`, with the nearest of them.
  [[noreturn]] void fail_unknown(std::string_view what,
                                 std::span<const std::string_view> candidates) const;

 private:
  friend class JsonDocument;
  JsonCursor(const class JsonDocument& document, const nlohmann::ordered_json& value)
      : document_(&document), value_(&value) {}
  /// Position of the text among `names`.
  std::size_t index_in(std::span<const std::string_view> names) const;
  [[noreturn]] void fail_type(std::string_view expected) const;

  const class JsonDocument* document_;
  const nlohmann::ordered_json* value_;
};

/// A parsed JSON text.
class JsonDocument {
 public:
  /// `source` names the text in errors. Throws InputError "source:line:column: ..." for what is not
  /// JSON, is nested deeper than 64 levels, has an object with more than 4,096 members or a key
  /// twice.
  JsonDocument(std::string_view text, std::string source);

  JsonCursor root() const { return {*this, *root_}; }

 private:
  friend class JsonCursor;
  std::string source_;
  std::shared_ptr<const nlohmann::ordered_json> root_;
};

}  // namespace shardplan
