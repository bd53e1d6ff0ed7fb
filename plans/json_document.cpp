#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "plans/document_builder.h"

namespace shardplan {
namespace {

using nlohmann::json;

/// "source:line:column" of the byte at `offset`.
std::string place(const std::string& source, std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const auto last_break = before.rfind('\n');
  const auto column = before.size() - (last_break == std::string_view::npos ? 0 : last_break + 1);
  return fmt::format("{}:{}:{}", source, line, std::max<std::size_t>(column, 1));
}

/// The parser's events; it never holds the document itself, and needs no stack of its own.
class TreeHandler {
 public:
  TreeHandler(std::string_view text, const std::string& source) : text_(text), source_(source) {}
  Node take() { return builder_.take(); }

  bool null() { return add(Node::Kind::Null, ""); }
  bool boolean(bool value) { return add(Node::Kind::Plain, value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return add(Node::Kind::Plain, std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) {
    return add(Node::Kind::Plain, std::to_string(value));
  }
  bool number_float(double, const std::string& digits) { return add(Node::Kind::Plain, digits); }
  bool string(std::string& value) { return add(Node::Kind::Quoted, std::move(value)); }
  bool key(std::string& name) { return add(Node::Kind::Quoted, std::move(name)); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return begin(Node::Kind::Mapping); }
  bool start_array(std::size_t) { return begin(Node::Kind::Sequence); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t offset, const std::string&, const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what": the end tells it.
    std::string_view what = error.what();
    const std::string_view separator = what.find("parse error at") != what.npos ? ": " : "] ";
    what.remove_prefix(std::min(what.size(), what.find(separator) + separator.size()));
    throw InputError(fmt::format("{}: no valid JSON: {}", place(source_, text_, offset), what));
  }

 private:
  Node node(Node::Kind kind) const {
    Node result;
    result.kind = kind;
    const std::string pointer = builder_.pointer();
    result.where = pointer.empty() ? source_ : fmt::format("{}: {}", source_, pointer);
    return result;
  }
  bool add(Node::Kind kind, std::string text) {
    Node scalar = node(kind);
    scalar.text = std::move(text);
    builder_.add(std::move(scalar));
    return true;
  }
  bool begin(Node::Kind kind) {
    builder_.begin(node(kind));
    return true;
  }
  bool end() {
    builder_.end();
    return true;
  }

  std::string_view text_;
  const std::string& source_;
  DocumentBuilder builder_;
};

}  // namespace

Node parse_json(std::string_view text, const std::string& source) {
  if (text.size() > kLargestText)
    throw InputError(fmt::format("{}: longer than {} bytes", source, kLargestText));
  TreeHandler handler(text, source);
  json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

}  // namespace shardplan
