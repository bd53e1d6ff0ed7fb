#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>

#include "plans/document_builder.h"

namespace shardplan {
namespace {

std::string place(const std::string& source, const YAML::Mark& mark) {
  return fmt::format("{}:{}:{}", source, mark.line + 1, mark.column + 1);
}

/// Turns the parser's events into our tree. An InputError thrown here ends the parse before the
/// parser, which is recursive, goes deeper.
class TreeHandler : public YAML::EventHandler {
 public:
  explicit TreeHandler(const std::string& source) : source_(source) {}
  DocumentBuilder& builder() { return builder_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(node(Node::Kind::Null, mark), "aliases ('*name') are not read here");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    builder_.add(checked(Node::Kind::Null, mark, "", anchor));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const auto kind = tag == "!" ? Node::Kind::Quoted : Node::Kind::Plain;
    Node scalar = checked(kind, mark, tag, anchor);
    scalar.text = value;
    builder_.add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    builder_.begin(checked(Node::Kind::Sequence, mark, tag, anchor));
  }
  void OnSequenceEnd() override { builder_.end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    builder_.begin(checked(Node::Kind::Mapping, mark, tag, anchor));
  }
  void OnMapEnd() override { builder_.end(); }

 private:
  Node node(Node::Kind kind, const YAML::Mark& mark) const {
    Node result;
    result.kind = kind;
    result.where = place(source_, mark);
    return result;
  }
  /// Refuses anchors, whose aliases could grow a small text without bound, and tags. yaml-cpp
  /// gives untagged plain scalars the tag "?" and quoted ones "!".
  Node checked(Node::Kind kind, const YAML::Mark& mark, const std::string& tag,
               YAML::anchor_t anchor) const {
    Node result = node(kind, mark);
    if (anchor != YAML::NullAnchor) fail(result, "anchors ('&name') are not read here");
    if (!tag.empty() && tag != "?" && tag != "!") fail(result, "tags ('!name') are not read here");
    return result;
  }

  const std::string& source_;
  DocumentBuilder builder_;
};

}  // namespace

Node parse_yaml(std::string_view text, const std::string& source) {
  if (text.size() > kLargestText)
    throw InputError(fmt::format("{}: longer than {} bytes", source, kLargestText));
  TreeHandler handler(source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(handler)) {
      // The builder would overwrite the first document with the second.
      if (handler.builder().complete() && parser)
        throw InputError(fmt::format("{}: holds more than one document", source));
    }
  } catch (const YAML::Exception& error) {
    throw InputError(fmt::format("{}: {}", place(source, error.mark), error.msg));
  }
  Node document = handler.builder().take();
  if (document.where.empty()) document.where = source;  // an empty text
  return document;
}

}  // namespace shardplan
