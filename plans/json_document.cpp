#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

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

/// A position in the text that tells how far the parser has read, which its events do not.
class CountedPosition {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedPosition(const char* at, std::size_t* read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  CountedPosition& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  CountedPosition operator++(int) {
    CountedPosition before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedPosition& other) const { return at_ == other.at_; }
  bool operator!=(const CountedPosition& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* read_;
};

/// Lines and columns of tokens that are asked for in the text's order.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) : text_(text) {}

  /// "line:column" of the token that ends at `end`: it begins after what separates it from the
  /// token before.
  std::string token_before(std::size_t end) {
    const auto begin = text_.find_first_not_of(" \t\r\n,:]}", last_end_);
    for (; counted_ < std::min(begin, text_.size()); ++counted_)
      if (text_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    last_end_ = end;
    return fmt::format("{}:{}", line_, counted_ - line_begin_ + 1);
  }

 private:
  std::string_view text_;
  std::size_t last_end_ = 0;
  std::size_t counted_ = 0;
  std::size_t line_ = 1;
  std::size_t line_begin_ = 0;
};

/// The parser's events; it never holds the document itself, and needs no stack of its own.
class TreeHandler {
 public:
  TreeHandler(std::string_view text, const std::string& source, JsonPlaces places)
      : text_(text), source_(source), places_(places), lines_(text) {}
  Node take() { return builder_.take(); }
  std::size_t* read() { return &read_; }

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
  Node node(Node::Kind kind) {
    Node result;
    result.kind = kind;
    if (places_ == JsonPlaces::Lines) {
      result.where = fmt::format("{}:{}", source_, lines_.token_before(read_));
      return result;
    }
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
  JsonPlaces places_;
  LineCounter lines_;
  std::size_t read_ = 0;  // bytes
  DocumentBuilder builder_;
};

}  // namespace

Node parse_json(std::string_view text, const std::string& source, JsonPlaces places) {
  if (text.size() > kLargestText)
    throw InputError(fmt::format("{}: longer than {} bytes", source, kLargestText));
  TreeHandler handler(text, source, places);
  const char* begin = text.data();
  json::sax_parse(CountedPosition(begin, handler.read()),
                  CountedPosition(begin + text.size(), handler.read()), &handler);
  return handler.take();
}

}  // namespace shardplan
