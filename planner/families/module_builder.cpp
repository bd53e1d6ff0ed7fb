#include "planner/families/module_builder.h"

#include <fmt/format.h>

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

Attributes Window::attributes() const {
  return {{Attribute::Height, static_cast<double>(height)},
          {Attribute::Width, static_cast<double>(width)},
          {Attribute::KernelSize, static_cast<double>(size)},
          {Attribute::Stride, static_cast<double>(stride)},
          {Attribute::Padding, static_cast<double>(padding)}};
}

void ModuleBuilder::module(const std::string& path, std::string_view class_name) {
  graph_.modules.push_back({path, std::string(class_name)});
}

int ModuleBuilder::parameter(const std::string& name, std::vector<std::int64_t> shape,
                             Initializer initializer) {
  return graph_.add_parameter({name, std::move(shape), initializer});
}

int ModuleBuilder::matrix(const std::string& name, std::vector<std::int64_t> shape) {
  return parameter(name, std::move(shape), {Initializer::Kind::Normal, standard_deviation_});
}

Operator ModuleBuilder::embedding(const std::string& path, std::int64_t rows, std::int64_t channels,
                                  std::string_view class_name) {
  module(path, class_name);
  const int weight = matrix(path + ".weight", {rows, channels});
  return with_parameters(OperatorKind::Embedding, path, features(rows, channels), {weight});
}

Operator ModuleBuilder::position_embedding(const std::string& path, std::int64_t rows,
                                           std::int64_t channels, std::int64_t offset,
                                           std::string_view class_name) {
  Operator op = embedding(path, rows, channels, class_name);
  op.kind = OperatorKind::PositionEmbedding;
  if (offset > 0) op.attributes.set(Attribute::Offset, static_cast<double>(offset));
  return op;
}

Operator ModuleBuilder::position_parameter(const std::string& path, std::string_view name,
                                           std::int64_t rows, std::int64_t channels) {
  const int table = matrix(fmt::format("{}.{}", path, name), {1, rows, channels});
  return with_parameters(OperatorKind::PositionEmbedding, path, features(rows, channels), {table});
}

Operator ModuleBuilder::linear(const std::string& path, std::int64_t in, std::int64_t out,
                               Bias bias, std::string_view class_name) {
  module(path, class_name);
  std::vector<int> parameters{matrix(path + ".weight", {out, in})};
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

Operator ModuleBuilder::tied_head(const std::string& path, const Operator& embedding, Bias bias) {
  module(path, "Linear");
  const std::int64_t rows = embedding.attributes.integer(Attribute::InFeatures);
  std::vector<int> parameters = embedding.parameters;
  if (bias == Bias::Yes) parameters.push_back(parameter(path + ".bias", {rows}, kZeros));
  return with_parameters(OperatorKind::Linear, path,
                         features(embedding.attributes.integer(Attribute::OutFeatures), rows),
                         std::move(parameters));
}

Operator ModuleBuilder::norm(const std::string& path, const Norm& norm, const NormShape& shape) {
  module(path, norm.class_name);
  std::vector<std::int64_t> weight{shape.channels};
  if (shape.own_weights) weight.insert(weight.begin(), shape.groups);
  std::vector<int> parameters;
  if (norm.parameters > 0)
    parameters.push_back(parameter(path + ".weight", weight, norm.unit_offset ? kZeros : kOnes));
  if (norm.parameters > 1) parameters.push_back(parameter(path + ".bias", weight, kZeros));
  const bool rms = norm.kind == Norm::Kind::Rms;
  Attributes attributes{{Attribute::OutFeatures, static_cast<double>(shape.channels)},
                        {Attribute::GroupsPerRow, static_cast<double>(shape.groups)},
                        {Attribute::Epsilon, norm.epsilon}};
  if (norm.parameters != (rms ? 1 : 2)) attributes.set(Attribute::NormParameters, norm.parameters);
  if (norm.unit_offset) attributes.set(Attribute::UnitOffset, 1);
  if (shape.own_weights) attributes.set(Attribute::OwnWeights, 1);
  return with_parameters(rms ? OperatorKind::RmsNorm : OperatorKind::LayerNorm, path,
                         std::move(attributes), std::move(parameters));
}

Operator ModuleBuilder::expert_linear(const std::string& path, std::string_view name,
                                      std::int64_t experts, std::int64_t in, std::int64_t out) {
  const int weight = matrix(fmt::format("{}.{}", path, name), {experts, out, in});
  Attributes attributes = features(in, out);
  attributes.set(Attribute::Experts, static_cast<double>(experts));
  return with_parameters(OperatorKind::ExpertLinear, path, std::move(attributes), {weight});
}

Operator ModuleBuilder::convolution(const std::string& path, std::string_view class_name,
                                    std::int64_t in, std::int64_t out, const Window& window,
                                    Bias bias) {
  module(path, class_name);
  std::vector<std::int64_t> shape{out, in, window.size};
  if (window.height > 1) shape.push_back(window.size);
  std::vector<int> parameters{matrix(path + ".weight", std::move(shape))};
  if (bias == Bias::Yes) parameters.push_back(parameter(path + ".bias", {out}, kZeros));
  Attributes attributes = window.attributes();
  attributes.set(Attribute::InFeatures, static_cast<double>(in));
  attributes.set(Attribute::OutFeatures, static_cast<double>(out));
  return with_parameters(OperatorKind::Convolution, path, std::move(attributes),
                         std::move(parameters));
}

Operator ModuleBuilder::leading_token(const std::string& path, std::string_view name,
                                      std::vector<std::int64_t> shape) {
  const auto channels = static_cast<double>(shape.back());
  const int token = matrix(fmt::format("{}.{}", path, name), std::move(shape));
  return with_parameters(OperatorKind::PrependToken, path, {{Attribute::OutFeatures, channels}},
                         {token});
}

Operator ModuleBuilder::projection(const std::string& path, std::string_view name, std::int64_t in,
                                   std::int64_t out) {
  const int weight = matrix(fmt::format("{}.{}", path, name), {in, out});
  Attributes attributes = features(in, out);
  attributes.set(Attribute::WeightTransposed, 1);
  return with_parameters(OperatorKind::Linear, path, std::move(attributes), {weight});
}

void ModuleBuilder::add_bias(Operator& op, const std::string& name, std::int64_t elements) {
  op.parameters.push_back(parameter(name, {elements}, kZeros));
}

void ModuleBuilder::unused(const std::string& name, std::vector<std::int64_t> shape) {
  matrix(name, std::move(shape));
}

int add(ModelGraph& graph, OperatorKind kind, const std::string& module, Attributes attributes,
        const std::vector<int>& inputs) {
  return graph.add(with_parameters(kind, module, std::move(attributes), {}), inputs);
}

int add(ModelGraph& graph, OperatorKind kind, const std::string& module, std::int64_t channels,
        const std::vector<int>& inputs) {
  return add(graph, kind, module,
             Attributes{{Attribute::OutFeatures, static_cast<double>(channels)}}, inputs);
}

ModelInputs add_inputs(ModelGraph& graph) {
  const int tokens = add(graph, OperatorKind::Input, "tokens", Attributes{}, {});
  const int targets = add(graph, OperatorKind::Input, "targets", Attributes{}, {});
  return {tokens, targets};
}

int add_loss(ModelGraph& graph, int logits, int targets, std::int64_t vocabulary) {
  return add(graph, OperatorKind::CrossEntropy, "",
             Attributes{{Attribute::InFeatures, static_cast<double>(vocabulary)}},
             {logits, targets});
}

}  // namespace shardplan
