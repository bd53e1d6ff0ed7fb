#include "plans/model_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "plans/error.h"

namespace shardplan {

std::int64_t Parameter::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

int ModelGraph::add_parameter(Parameter parameter) {
  parameters.push_back(std::move(parameter));
  return static_cast<int>(parameters.size()) - 1;
}

int ModelGraph::add(Operator op, const std::vector<int>& inputs) {
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (const int input : inputs)
    types.push_back(dag[input].output);
  try {
    op.output = infer_output(op.kind, op.attributes, types);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", op.module, error.what()));
  }
  const auto vertex = boost::add_vertex(op, dag);
  for (std::size_t slot = 0; slot < inputs.size(); ++slot)
    boost::add_edge(inputs[slot], vertex, InputSlot{static_cast<int>(slot)}, dag);
  return static_cast<int>(vertex);
}

std::vector<int> ModelGraph::inputs_of(int vertex) const {
  std::vector<int> inputs(boost::in_degree(vertex, dag));
  for (const auto& edge : boost::make_iterator_range(boost::in_edges(vertex, dag)))
    inputs[dag[edge].index] = static_cast<int>(boost::source(edge, dag));
  return inputs;
}

std::int64_t ModelGraph::parameter_count() const {
  Extent count = 0;
  for (const Parameter& parameter : parameters)
    count = count + parameter.elements();
  if (count.value() > kMostElements)
    throw InputError(fmt::format("a model of more than {} parameters", kMostElements));
  return count.value();
}

std::optional<std::int64_t> ModelGraph::most_positions() const {
  std::optional<std::int64_t> most;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(dag))) {
    if (dag[vertex].kind != OperatorKind::PositionEmbedding) continue;
    const Attributes& attributes = dag[vertex].attributes;
    if (!dag[vertex].output.dimensions[1].time) continue;  // of an image: always the same
    const std::int64_t positions =
        attributes.integer(Attribute::InFeatures) - attributes.integer(Attribute::Offset);
    most = std::min(most.value_or(positions), positions);
  }
  return most;
}

}  // namespace shardplan
