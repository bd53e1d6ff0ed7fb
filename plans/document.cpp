#include "plans/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "plans/names.h"

namespace shardplan {
namespace {

/// What a message shows of a value that is wrong.
std::string shown(const Node& node) {
  constexpr std::size_t kLongest = 60;
  switch (node.kind) {
    case Node::Kind::Null: return "null";
    case Node::Kind::Sequence: return "a list";
    case Node::Kind::Mapping: return "a mapping";
    case Node::Kind::Plain:
    case Node::Kind::Quoted: break;
  }
  const char* end = node.text.size() > kLongest ? "..." : "";
  return fmt::format("'{}{}'", node.text.substr(0, kLongest), end);
}

[[noreturn]] void fail_expecting(const Node& node, std::string_view name,
                                 std::string_view expected) {
  fail(node, fmt::format("{}: expected {}, found {}", name, expected, shown(node)));
}

std::string bounds(double least, double most) {
  const std::string from = least == kPositive   ? " greater than 0"
                           : least == -kNoLimit ? ""
                                                : fmt::format(" of at least {}", least);
  return most == kNoLimit ? from
                          : fmt::format("{}{} at most {}", from, from.empty() ? "" : " and", most);
}

/// True for texts like 12, -0.5 or 3e-4; strtod alone also takes hexadecimal, "inf" and "nan".
bool looks_like_number(const std::string& text) {
  const auto in_numbers = [](char c) { return std::strchr("0123456789+-.eE", c) != nullptr; };
  return !text.empty() && text.size() < 64 && text.find('\0') == std::string::npos &&
         std::ranges::all_of(text, in_numbers);
}

/// The finite number a plain scalar stands for, else NaN.
double number_of(const Node& node) {
  if (node.kind != Node::Kind::Plain || !looks_like_number(node.text)) return std::nan("");
  char* end = nullptr;
  const double number = std::strtod(node.text.c_str(), &end);
  return *end == '\0' && std::isfinite(number) ? number : std::nan("");
}

}  // namespace

std::string read_text(const std::string& path, std::size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  // By pieces: what the path names need not have a size, or an end.
  std::string text;
  std::array<char, 16'384> piece;
  while (text.size() <= most_bytes && (file.read(piece.data(), piece.size()), file.gcount() > 0))
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  if (file.bad())
    throw InputError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  if (text.size() > most_bytes)
    throw InputError(fmt::format("{}: longer than {} bytes", path, most_bytes));
  return text;
}

void fail(const Node& node, std::string_view message) {
  throw InputError(fmt::format("{}: {}", node.where, message));
}

bool boolean_of(const Node& node, std::string_view name) {
  if (node.kind == Node::Kind::Plain) {
    for (const char* yes : {"true", "True", "TRUE"})
      if (node.text == yes) return true;
    for (const char* no : {"false", "False", "FALSE"})
      if (node.text == no) return false;
  }
  fail_expecting(node, name, "true or false");
}

std::string text_of(const Node& node, std::string_view name) {
  if (!node.is_scalar()) fail_expecting(node, name, "a text");
  return node.text;
}

double real_of(const Node& node, std::string_view name, double least, double most) {
  const double number = number_of(node);
  if (!(number >= least && number <= most))
    fail_expecting(node, name, "a number" + bounds(least, most));
  return number;
}

std::int64_t integer_of(const Node& node, std::string_view name, std::int64_t least,
                        std::int64_t most) {
  const std::string expected = fmt::format("an integer from {} to {}", least, most);
  const double number = number_of(node);
  // strtoll keeps the digits that a double would round; "1e6" is an integer too.
  const bool digits = node.text.find_first_not_of("+-0123456789") == std::string::npos;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!digits && !(std::abs(number) <= kExact && number == std::floor(number)))
    fail_expecting(node, name, expected);
  if (std::isnan(number)) fail_expecting(node, name, expected);
  errno = 0;
  const std::int64_t value =
      digits ? std::strtoll(node.text.c_str(), nullptr, 10) : static_cast<std::int64_t>(number);
  if (errno == ERANGE || value < least || value > most) fail_expecting(node, name, expected);
  return value;
}

std::vector<std::string> texts_of(const Node& node, std::string_view name) {
  if (node.kind != Node::Kind::Sequence) fail_expecting(node, name, "a list");
  std::vector<std::string> texts;
  for (const Node& item : node.items)
    texts.push_back(text_of(item, name));
  return texts;
}

Fields::Fields(const Node& mapping, std::string path)
    : Fields(mapping, std::move(path), mapping.where) {}

Fields::Fields(const Node& mapping, std::string path, std::string where)
    : node_(&mapping), path_(std::move(path)), where_(std::move(where)) {
  if (mapping.kind != Node::Kind::Mapping && mapping.kind != Node::Kind::Null)
    fail_expecting(mapping, path_.empty() ? "the document" : path_, "a mapping");
}

void Fields::fail(std::string_view message) const {
  throw InputError(fmt::format("{}: {}", where_, message));
}

std::string Fields::name_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const Node* Fields::find_any(std::string_view key) {
  if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
  for (const Entry& entry : node_->entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

const Node* Fields::find(std::string_view key) {
  const Node* node = find_any(key);
  return node != nullptr && node->kind != Node::Kind::Null ? node : nullptr;
}

Fields Fields::section(std::string_view key) {
  static const Node kEmpty;
  const Node* node = find(key);
  return node != nullptr ? Fields(*node, name_of(key)) : Fields(kEmpty, name_of(key), where_);
}

void Fields::read(std::string_view key, bool& value) {
  if (const Node* node = find(key)) value = boolean_of(*node, name_of(key));
}

void Fields::read(std::string_view key, std::string& value) {
  if (const Node* node = find(key)) value = text_of(*node, name_of(key));
}

void Fields::read(std::string_view key, double& value, double least, double most) {
  if (const Node* node = find(key)) value = real_of(*node, name_of(key), least, most);
}

std::vector<const Entry*> Fields::unread() const {
  std::vector<const Entry*> entries;
  for (const Entry& entry : node_->entries)
    if (std::ranges::find(known_, entry.key) == known_.end()) entries.push_back(&entry);
  return entries;
}

void Fields::refuse_unknown() const {
  const auto entries = unread();
  if (entries.empty()) return;
  const std::string what = path_.empty() ? "field" : fmt::format("field of {}", path_);
  throw InputError(fmt::format("{}: {}", entries.front()->where,
                               unknown_name(what, entries.front()->key, known_)));
}

}  // namespace shardplan
