#include "planner/graph_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "plans/document.h"
#include "plans/kernel_operands.h"

namespace shardplan {
namespace {

constexpr std::int64_t kMostRepeats = 1 << 11;
constexpr std::int64_t kMostOperators = 1 << 17;  // of all repeats together
constexpr double kLargestAttribute = 1e15;        // products of two stay exact enough to be refused

/// Values of `{i}` in names, by index.
using Indices = std::map<std::string, std::int64_t>;

std::string filled(std::string text, const Indices& indices) {
  for (const auto& [name, value] : indices) {
    const std::string place = "{" + name + "}";
    const std::string number = std::to_string(value);
    for (std::size_t at = text.find(place); at != std::string::npos;
         at = text.find(place, at + number.size()))
      text.replace(at, place.size(), number);
  }
  return text;
}

const Node& expect_mapping(const Node& node, std::string_view what) {
  if (node.kind != Node::Kind::Mapping) fail(node, fmt::format("{}: expected a mapping", what));
  return node;
}

OperatorKind kind_of(const Node& node) {
  return located(node, [&] { return operator_kind_from(text_of(node, "kind")); });
}

/// How many operands of that kind the operator's forward reads.
int operands_of(const OperatorSpec& one, Role::Kind kind) {
  int count = 0;
  for (const KernelCall& call : one.forward)
    count += static_cast<int>(std::ranges::count(call.reads, kind, &Role::kind));
  return count;
}

class GraphReader {
 public:
  GraphReader(const Node& document, ModelGraph& graph) : document_(document), graph_(graph) {}

  void read() {
    Fields fields(document_, "");
    graph_.family = "graph";
    fields.read("family", graph_.family);
    if (const Node* blocks = fields.find("blocks"))
      graph_.block_classes = texts_of(*blocks, "blocks");
    for (const char* input : {"tokens", "targets"}) {
      Operator op;
      op.module = input;
      vertices_[input] = graph_.add(std::move(op), {});
    }
    read_part(fields, {});
    fields.refuse_unknown();
    expect_loss(fields);
  }

 private:
  /// Modules, parameters and operators of the document or of one repetition.
  void read_part(Fields& fields, const Indices& indices) {
    if (const Node* modules = fields.find("modules"))
      for (const Entry& entry : expect_mapping(*modules, "modules").entries)
        graph_.modules.push_back(
            {filled(entry.key, indices), text_of(entry.value, "a module's class")});
    if (const Node* parameters = fields.find("parameters"))
      for (const Entry& entry : expect_mapping(*parameters, "parameters").entries)
        read_parameter(entry, indices);
    const Node* operators = fields.find("operators");
    if (operators == nullptr) fields.fail("'operators' is missing");
    if (operators->kind != Node::Kind::Sequence) fail(*operators, "operators: expected a list");
    for (const Node& item : operators->items) {
      if (item.kind == Node::Kind::Mapping && !item.entries.empty() &&
          item.entries.front().key == "repeat")
        read_repeat(item, indices);
      else
        read_operator(item, indices);
    }
  }

  void read_parameter(const Entry& entry, const Indices& indices) {
    Parameter parameter{.name = filled(entry.key, indices), .shape = {}, .initializer = {}};
    const Node* shape = &entry.value;
    std::optional<Fields> fields;
    if (entry.value.kind == Node::Kind::Mapping) {
      fields.emplace(entry.value, entry.key);
      shape = fields->find("shape");
      if (shape == nullptr) fields->fail("'shape' is missing");
      fields->read("trainable", parameter.trainable);
      if (const Node* init = fields->find("init")) read_initializer(*init, parameter.initializer);
      fields->refuse_unknown();
    }
    if (shape->kind != Node::Kind::Sequence || shape->items.empty())
      fail(*shape, "a shape: expected a list of sizes");
    double elements = 1;
    for (const Node& size : shape->items) {
      parameter.shape.push_back(integer_of(size, "a shape's size", 1, kMostElements));
      elements *= static_cast<double>(parameter.shape.back());
    }
    if (elements > static_cast<double>(kMostElements))
      fail(*shape, fmt::format("a parameter of more than {} elements", kMostElements));
    if (!parameters_.emplace(parameter.name, static_cast<int>(graph_.parameters.size())).second)
      throw InputError(
          fmt::format("{}: parameter '{}' is there twice", entry.where, parameter.name));
    graph_.add_parameter(std::move(parameter));
  }

  void read_initializer(const Node& node, Initializer& initializer) {
    const bool word = node.is_scalar() && (node.text == "ones" || node.text == "zeros");
    if (word)
      initializer.kind = node.text == "ones" ? Initializer::Kind::Ones : Initializer::Kind::Zeros;
    else
      initializer.standard_deviation = real_of(node, "init (ones, zeros or a deviation)", 0, 100);
  }

  /// {repeat: 4, index: i, carry: {x: y}, ...}: x is the value before, then y of the repetition
  /// before, and after all of them the last y.
  void read_repeat(const Node& item, const Indices& indices) {
    Fields fields(item, "repeat");
    const std::int64_t times = integer_of(*fields.find_any("repeat"), "repeat", 1, kMostRepeats);
    std::string index = "i";
    fields.read("index", index);
    std::vector<std::pair<std::string, std::string>> carried;
    if (const Node* carry = fields.find("carry"))
      for (const Entry& entry : expect_mapping(*carry, "carry").entries)
        carried.emplace_back(entry.key, text_of(entry.value, "carry"));
    for (std::int64_t i = 0; i < times; ++i) {
      Indices inner = indices;
      inner[index] = i;
      Fields part(item, "repeat");
      read_part(part, inner);
      for (const auto& [name, next] : carried) {
        const auto found = vertices_.find(filled(next, inner));
        if (found == vertices_.end())
          fields.fail(fmt::format("carry: there is no operator '{}'", next));
        vertices_[name] = found->second;
      }
    }
    for (const char* key : {"modules", "parameters", "operators"})
      fields.find(key);
    fields.refuse_unknown();
  }

  void read_operator(const Node& item, const Indices& indices) {
    if (item.kind != Node::Kind::Mapping || item.entries.size() != 1)
      fail(item, "an operator: expected one name and its fields, as in 'x: {kind: add, ...}'");
    if (boost::num_vertices(graph_.dag) >= kMostOperators)
      fail(item, fmt::format("more than {} operators", kMostOperators));
    const Entry& entry = item.entries.front();
    Fields fields(entry.value, entry.key);
    const Node* kind = fields.find("kind");
    if (kind == nullptr) fields.fail("'kind' is missing");
    Operator op;
    op.kind = kind_of(*kind);
    op.module = entry.key;
    fields.read("module", op.module);
    op.module = filled(op.module, indices);
    const std::vector<int> inputs = read_inputs(fields, op.kind, indices);
    op.parameters = read_parameters(fields, op.kind, indices);
    read_attributes(entry.value, op.attributes);
    check_parameters(fields, op);
    const int vertex = located(entry.value, [&] { return graph_.add(std::move(op), inputs); });
    vertices_[filled(entry.key, indices)] = vertex;
  }

  std::vector<int> read_inputs(Fields& fields, OperatorKind kind, const Indices& indices) {
    std::vector<int> inputs;
    if (const Node* node = fields.find("inputs"))
      for (const std::string& name : texts_of(*node, "inputs")) {
        const auto found = vertices_.find(filled(name, indices));
        if (found == vertices_.end())
          fail(*node, fmt::format("there is no operator '{}' before this one", name));
        if (graph_.dag[found->second].kind == OperatorKind::CrossEntropy)
          fail(*node, "a loss is the end of a graph");
        inputs.push_back(found->second);
      }
    const int expected = operands_of(spec(kind), Role::Kind::Input);
    if (static_cast<int>(inputs.size()) != expected)
      fields.fail(fmt::format("operator {} has {} inputs, expected {}", spec(kind).name,
                              inputs.size(), expected));
    return inputs;
  }

  std::vector<int> read_parameters(Fields& fields, OperatorKind kind, const Indices& indices) {
    std::vector<int> parameters;
    if (const Node* node = fields.find("parameters"))
      for (const std::string& name : texts_of(*node, "parameters")) {
        const auto found = parameters_.find(filled(name, indices));
        if (found == parameters_.end())
          fail(*node, fmt::format("there is no parameter '{}'", name));
        parameters.push_back(found->second);
      }
    const int most = operands_of(spec(kind), Role::Kind::Parameter);
    if (static_cast<int>(parameters.size()) > most)
      fields.fail(fmt::format("operator {} has {} parameters, expected at most {}", spec(kind).name,
                              parameters.size(), most));
    return parameters;
  }

  void read_attributes(const Node& fields, Attributes& attributes) {
    for (const Entry& entry : fields.entries) {
      if (entry.key == "kind" || entry.key == "module" || entry.key == "inputs" ||
          entry.key == "parameters")
        continue;
      const Attribute attribute = located(entry.value, [&] { return attribute_from(entry.key); });
      attributes.set(attribute,
                     real_of(entry.value, entry.key, -kLargestAttribute, kLargestAttribute));
    }
  }

  /// Parameters have the sizes that the kernel reads, whatever the batch.
  void check_parameters(const Fields& fields, const Operator& op) {
    const OperatorSpec& one = spec(op.kind);
    if (one.forward.empty()) return;
    Attributes attributes = op.attributes;
    attributes.set(Attribute::Batch, 1);
    attributes.set(Attribute::Time, 1);
    const std::string wrong =
        attribute_fault(one.forward.front().kernel, attributes, Profile::Cuda);
    if (!wrong.empty()) fields.fail(wrong);
    const auto& reads = one.forward.front().reads;
    const OperandTypes types = operand_types(one.forward.front().kernel, attributes, Profile::Cuda);
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (reads[i].kind != Role::Kind::Parameter) continue;
      const auto index = static_cast<std::size_t>(reads[i].index);
      if (index >= op.parameters.size()) {
        const bool optional =
            i + static_cast<std::size_t>(types.optional_reads) >= types.reads.size();
        if (i < types.reads.size() && !optional)
          fields.fail(fmt::format("operator {} lacks a parameter of {} elements", one.name,
                                  types.reads[i].elems->value()));
        continue;
      }
      const Parameter& parameter = graph_.parameters[op.parameters[index]];
      if (i < types.reads.size() && Extent(parameter.elements()) != types.reads[i].elems)
        fields.fail(fmt::format("parameter {} has {} elements, operator {} reads {}",
                                parameter.name, parameter.elements(), one.name,
                                types.reads[i].elems->value()));
    }
  }

  void expect_loss(const Fields& fields) {
    const auto last = boost::num_vertices(graph_.dag) - 1;
    if (graph_.dag[last].kind != OperatorKind::CrossEntropy)
      fields.fail("the last operator must be a cross_entropy: there is nothing to train on");
    for (std::size_t vertex = 0; vertex < last; ++vertex)
      if (graph_.dag[vertex].kind == OperatorKind::CrossEntropy)
        fields.fail("a graph has one loss, its last operator");
    const int logits = graph_.inputs_of(static_cast<int>(last))[0];
    const OperatorSpec& made_by = spec(graph_.dag[logits].kind);
    const bool needed = std::ranges::any_of(made_by.backward, [](const KernelCall& call) {
      return std::ranges::find(call.reads, Role::Kind::Output, &Role::kind) != call.reads.end();
    });
    if (boost::out_degree(logits, graph_.dag) > 1 || needed || made_by.forward.empty())
      fields.fail(
          fmt::format("the loss overwrites the logits with their gradient: nothing else may "
                      "read them, not even the backward of {}",
                      made_by.name));
    std::vector<bool> read(graph_.parameters.size(), false);
    for (std::size_t vertex = 0; vertex < last; ++vertex)
      for (const int parameter : graph_.dag[vertex].parameters)
        read[parameter] = true;
    for (std::size_t i = 0; i < read.size(); ++i)
      if (!read[i])
        fields.fail(fmt::format("no operator reads parameter '{}'", graph_.parameters[i].name));
    if (read.empty()) fields.fail("a graph without parameters: nothing is trained");
  }

  const Node& document_;
  ModelGraph& graph_;
  std::map<std::string, int> vertices_;    // by name
  std::map<std::string, int> parameters_;  // likewise
};

}  // namespace

ModelGraph read_graph(std::string_view yaml, const std::string& source) {
  const Node document = parse_yaml(yaml, source);
  ModelGraph graph;
  GraphReader(document, graph).read();
  return graph;
}

}  // namespace shardplan
