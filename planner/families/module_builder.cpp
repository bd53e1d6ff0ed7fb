#include "planner/families/module_builder.h"

#include <utility>

namespace shardplan {
namespace {

Operator with_parameters(OperatorKind kind, const std::string& module, Attributes attributes,
                         std::vector<int> parameters) {
  Operator op;
  op.kind = kind;
  op.module = module;
  op.attributes = std::move(attributes);
  op.parameters = std::move(parameters);
  return op;
}

Attributes features(std::int64_t in, std::int64_t out) {
  return {{Attribute::InFeatures, static_cast<double>(in)},
          {Attribute::OutFeatures, static_cast<double>(out)}};
}

constexpr Initializer kOnes{Initializer::Kind::Ones};
constexpr Initializer kZeros{Initializer::Kind::Zeros};

}  // namespace

void ModuleBuilder::module(const std::string& path, std::string_view class_name) {
  graph_.modules.push_back({path, std::string(class_name)});
}

int ModuleBuilder::parameter(const std::string& name, std::vector<std::int64_t> shape,
                             Initializer initializer) {
  return graph_.add_parameter({name, std::move(shape), initializer});
}

Operator ModuleBuilder::embedding(const std::string& path, std::int64_t rows,
                                  std::int64_t channels) {
  module(path, "Embedding");
  const int weight = parameter(path + ".weight", {rows, channels},
                               {Initializer::Kind::Normal, standard_deviation_});
  return with_parameters(OperatorKind::Embedding, path, features(rows, channels), {weight});
}

Operator ModuleBuilder::position_embedding(const std::string& path, std::int64_t rows,
                                           std::int64_t channels) {
  Operator op = embedding(path, rows, channels);
  op.kind = OperatorKind::PositionEmbedding;
  return op;
}

Operator ModuleBuilder::linear(const std::string& path, std::int64_t in, std::int64_t out,
                               Bias bias) {
  module(path, "Linear");
  std::vector<int> parameters{
      parameter(path + ".weight", {out, in}, {Initializer::Kind::Normal, standard_deviation_})};
  if (bias == Bias::Yes) parameters.push_back(parameter(path + ".bias", {out}, kZeros));
  return with_parameters(OperatorKind::Linear, path, features(in, out), std::move(parameters));
}

Operator ModuleBuilder::conv1d(const std::string& path, std::int64_t in, std::int64_t out,
                               double standard_deviation) {
  module(path, "Conv1D");
  const int weight =
      parameter(path + ".weight", {in, out}, {Initializer::Kind::Normal, standard_deviation});
  const int bias = parameter(path + ".bias", {out}, kZeros);
  Attributes attributes = features(in, out);
  attributes.set(Attribute::WeightTransposed, 1);
  return with_parameters(OperatorKind::Linear, path, std::move(attributes), {weight, bias});
}

Operator ModuleBuilder::tied_head(const std::string& path, const Operator& embedding) {
  module(path, "Linear");
  return with_parameters(OperatorKind::Linear, path,
                         features(embedding.attributes.integer(Attribute::OutFeatures),
                                  embedding.attributes.integer(Attribute::InFeatures)),
                         embedding.parameters);
}

Operator ModuleBuilder::rms_norm(const std::string& path, std::string_view class_name,
                                 std::int64_t channels, double epsilon, std::int64_t groups) {
  module(path, class_name);
  const int weight = parameter(path + ".weight", {channels}, kOnes);
  return with_parameters(OperatorKind::RmsNorm, path,
                         {{Attribute::OutFeatures, static_cast<double>(channels)},
                          {Attribute::GroupsPerRow, static_cast<double>(groups)},
                          {Attribute::Epsilon, epsilon}},
                         {weight});
}

Operator ModuleBuilder::layer_norm(const std::string& path, std::int64_t channels, double epsilon) {
  module(path, "LayerNorm");
  const int weight = parameter(path + ".weight", {channels}, kOnes);
  const int bias = parameter(path + ".bias", {channels}, kZeros);
  return with_parameters(OperatorKind::LayerNorm, path,
                         {{Attribute::OutFeatures, static_cast<double>(channels)},
                          {Attribute::GroupsPerRow, 1},
                          {Attribute::Epsilon, epsilon}},
                         {weight, bias});
}

int add(ModelGraph& graph, OperatorKind kind, const std::string& module, Attributes attributes,
        const std::vector<int>& inputs) {
  return graph.add(with_parameters(kind, module, std::move(attributes), {}), inputs);
}

ModelInputs add_inputs(ModelGraph& graph) {
  const int tokens = add(graph, OperatorKind::Input, "tokens", {}, {});
  const int targets = add(graph, OperatorKind::Input, "targets", {}, {});
  return {tokens, targets};
}

int add_loss(ModelGraph& graph, int logits, int targets, std::int64_t vocabulary) {
  return add(graph, OperatorKind::CrossEntropy, "",
             {{Attribute::InFeatures, static_cast<double>(vocabulary)}}, {logits, targets});
}

}  // namespace shardplan
