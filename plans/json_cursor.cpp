#include "plans/json_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "plans/nearest.h"

namespace shardplan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxMembers = 4096;
constexpr std::size_t kMaxQuoted = 80;  // characters of the user's text that an error repeats

[[noreturn]] void fail_at(std::string_view text, const std::string& source, std::size_t at,
                          std::string_view what) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  throw InputError(fmt::format("{}:{}:{}: {}", source, line, column, what));
}

/// What the library does not refuse: nesting, which it takes on its stack when it writes a value;
/// objects with many members, each of which it looks up among all; and keys that are there twice.
/// For text that is no JSON anything may come out of it, but no error of another kind.
class Limits {
 public:
  Limits(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  void check() {
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"') i = skip_string(i);
      if (c == '{' || c == '[') open(i);
      if ((c == '}' || c == ']') && depth_ > 0) close(i);
      if (c == ':') add_key(i);
    }
  }

 private:
  /// Returns where the string that begins at `begin` ends.
  std::size_t skip_string(std::size_t begin) {
    std::size_t end = begin + 1;
    while (end < text_.size() && text_[end] != '"')
      end += text_[end] == '\\' ? 2 : 1;
    end = std::min(end, text_.size());
    last_string_ = text_.substr(begin + 1, end - begin - 1);
    return end;
  }
  void open(std::size_t at) {
    if (++depth_ > kMaxDepth)
      fail_at(text_, source_, at, fmt::format("nested deeper than {} levels", kMaxDepth));
    keys_[depth_].clear();
  }
  void close(std::size_t at) {
    std::vector<std::string_view>& keys = keys_[depth_--];
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end())
      fail_at(text_, source_, at,
              fmt::format("key '{}' is there twice", twice->substr(0, kMaxQuoted)));
  }
  void add_key(std::size_t at) {
    keys_[depth_].push_back(last_string_);
    if (keys_[depth_].size() > kMaxMembers)
      fail_at(text_, source_, at, fmt::format("an object with more than {} members", kMaxMembers));
  }

  std::string_view text_;
  const std::string& source_;
  std::array<std::vector<std::string_view>, kMaxDepth + 1> keys_;  // by depth, as they are written
  std::size_t depth_ = 0;
  std::string_view last_string_;
};

std::string escaped(std::string_view key) {
  std::string result;
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

/// The JSON pointer of `target`, which lies in `value`: searched for, because only errors need it.
bool find_pointer(const Json& value, const Json* target, std::string& pointer) {
  if (&value == target) return true;
  const std::size_t length = pointer.size();
  if (value.is_object()) {
    for (const auto& [key, member] : value.get_ref<const Json::object_t&>()) {
      pointer += "/" + escaped(key);
      if (find_pointer(member, target, pointer)) return true;
      pointer.resize(length);
    }
  }
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      pointer += fmt::format("/{}", i);
      if (find_pointer(value[i], target, pointer)) return true;
      pointer.resize(length);
    }
  }
  return false;
}

std::string shortened(std::string_view text) {
  if (text.size() <= kMaxQuoted) return std::string(text);
  return std::string(text.substr(0, kMaxQuoted)) + "...";
}

std::string unknown(std::string_view what, std::string_view word,
                    std::span<const std::string_view> candidates) {
  const std::string_view closest = nearest(word, candidates);
  const std::string hint = closest.empty() ? "" : fmt::format(", nearest '{}'", shortened(closest));
  return fmt::format("unknown {} '{}'{}", what, shortened(word), hint);
}

}  // namespace

JsonDocument::JsonDocument(std::string_view text, std::string source) : source_(std::move(source)) {
  Limits(text, source_).check();
  try {
    root_ = std::make_shared<const Json>(Json::parse(text));
  } catch (const Json::parse_error& error) {
    fail_at(text, source_, error.byte == 0 ? 0 : error.byte - 1, "this is not JSON");
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{}: {}", source_, error.what()));
  }
}

JsonCursor JsonCursor::at(std::string_view key) const {
  if (!value_->is_object()) fail_type("an object");
  for (const auto& [name, member] : value_->get_ref<const Json::object_t&>())
    if (name == key) return {*document_, member};
  fail(fmt::format("'{}' is missing", key));
}

std::optional<JsonCursor> JsonCursor::find(std::string_view key) const {
  if (!value_->is_object()) fail_type("an object");
  for (const auto& [name, member] : value_->get_ref<const Json::object_t&>())
    if (name == key && !member.is_null()) return JsonCursor{*document_, member};
  return std::nullopt;
}

void JsonCursor::allow_only(std::span<const std::string_view> keys) const {
  if (!value_->is_object()) fail_type("an object");
  for (const auto& [name, member] : value_->get_ref<const Json::object_t&>())
    if (std::find(keys.begin(), keys.end(), name) == keys.end()) fail(unknown("key", name, keys));
}

std::vector<JsonCursor> JsonCursor::elements() const {
  if (!value_->is_array()) fail_type("an array");
  std::vector<JsonCursor> result;
  result.reserve(value_->size());
  for (const Json& element : *value_)
    result.push_back({*document_, element});
  return result;
}

std::vector<std::pair<std::string_view, JsonCursor>> JsonCursor::members() const {
  if (!value_->is_object()) fail_type("an object");
  std::vector<std::pair<std::string_view, JsonCursor>> result;
  for (const auto& [name, member] : value_->get_ref<const Json::object_t&>())
    result.emplace_back(name, JsonCursor{*document_, member});
  return result;
}

bool JsonCursor::is_text() const { return value_->is_string(); }

const std::string& JsonCursor::text() const {
  if (!value_->is_string()) fail_type("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonCursor::boolean() const {
  if (!value_->is_boolean()) fail_type("true or false");
  return value_->get<bool>();
}

double JsonCursor::real() const {
  if (!value_->is_number()) fail_type("a number");
  return value_->get<double>();
}

std::int64_t JsonCursor::integer(std::int64_t least, std::int64_t most) const {
  if (!value_->is_number_integer()) fail_type("an integer");
  // What does not fit into 64 signed bits is kept unsigned by the library.
  const bool huge = value_->is_number_unsigned() &&
                    value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const std::int64_t value = huge ? INT64_MAX : value_->get<std::int64_t>();
  if (huge || value < least || value > most)
    fail(fmt::format("{} is out of range, expected {} to {}", value_->dump(), least, most));
  return value;
}

std::string JsonCursor::dump() const { return value_->dump(); }

std::size_t JsonCursor::index_in(std::span<const std::string_view> names) const {
  const auto place = std::find(names.begin(), names.end(), text());
  if (place == names.end()) fail_unknown("name", names);
  return static_cast<std::size_t>(place - names.begin());
}

void JsonCursor::fail(std::string_view what_is_wrong) const {
  std::string pointer;
  find_pointer(*document_->root_, value_, pointer);
  throw InputError(fmt::format("{}: {}: {}", document_->source_, pointer.empty() ? "/" : pointer,
                               what_is_wrong));
}

void JsonCursor::fail_unknown(std::string_view what,
                              std::span<const std::string_view> candidates) const {
  fail(unknown(what, text(), candidates));
}

void JsonCursor::fail_type(std::string_view expected) const {
  fail(fmt::format("expected {}, got {}", expected, shortened(value_->dump())));
}

}  // namespace shardplan
