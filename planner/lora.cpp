#include "planner/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "plans/error.h"

namespace shardplan {
namespace {

std::string last_component(const std::string& path) { return path.substr(path.rfind('.') + 1); }

class LoraBuilder {
 public:
  LoraBuilder(const ModelGraph& base, const LoraJob& lora) : base_(base), lora_(lora) {
    graph_ = base;
    graph_.dag.clear();
    bases_.resize(base.parameters.size());
    std::iota(bases_.begin(), bases_.end(), 0);
  }

  ModelGraph build() {
    expect_targets();
    std::vector<int> vertex_of;  // by vertex of the base
    for (const auto vertex : boost::make_iterator_range(boost::vertices(base_.dag))) {
      std::vector<int> inputs;
      for (const int input : base_.inputs_of(static_cast<int>(vertex)))
        inputs.push_back(vertex_of[input]);
      const Operator& op = base_.dag[vertex];
      const int copied = graph_.add(op, inputs);
      vertex_of.push_back(is_target(op) ? add_adapter(op, inputs.front(), copied) : copied);
    }
    put_adapters_behind_bases();
    return std::move(graph_);
  }

 private:
  /// Parameters stand in the modules' order, as PEFT's do: FSDP1 flattens them in it.
  void put_adapters_behind_bases() {
    std::vector<int> order(graph_.parameters.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int index) { return bases_[index]; });
    std::vector<Parameter> sorted;
    std::vector<int> places(order.size());
    for (const int index : order) {
      places[index] = static_cast<int>(sorted.size());
      sorted.push_back(std::move(graph_.parameters[index]));
    }
    graph_.parameters = std::move(sorted);
    for (const auto vertex : boost::make_iterator_range(boost::vertices(graph_.dag)))
      for (int& parameter : graph_.dag[vertex].parameters)
        parameter = places[parameter];
  }

  bool is_target(const Operator& op) const {
    return op.kind == OperatorKind::Linear &&
           std::ranges::find(lora_.targets, last_component(op.module)) != lora_.targets.end();
  }

  void expect_targets() const {
    std::set<std::string> known;
    for (const auto vertex : boost::make_iterator_range(boost::vertices(base_.dag)))
      if (base_.dag[vertex].kind == OperatorKind::Linear)
        known.insert(last_component(base_.dag[vertex].module));
    for (const std::string& target : lora_.targets)
      if (!known.contains(target))
        throw FieldError("model.lora.targets",
                         fmt::format("the model has no linear layer '{}'; it has {}", target,
                                     fmt::join(known, ", ")));
  }

  /// The adapter's half `name`: [out, in].
  int linear(const Operator& base, const char* name, int input, std::int64_t in, std::int64_t out,
             Initializer initializer) {
    const std::string path = fmt::format("{}.{}", base.module, name);
    graph_.modules.push_back({path, "Linear"});
    const int weight = graph_.add_parameter(
        {fmt::format("base_model.model.{}.weight", path), {out, in}, initializer});
    graph_.parameters[weight].dtype = lora_.dtype;
    bases_.push_back(base.parameters.back());
    const Attributes features{{Attribute::InFeatures, static_cast<double>(in)},
                              {Attribute::OutFeatures, static_cast<double>(out)}};
    return graph_.add({OperatorKind::Linear, path, features, {weight}, {}}, {input});
  }

  int add_adapter(const Operator& op, int input, int output) {
    const std::int64_t in = op.attributes.integer(Attribute::InFeatures);
    const std::int64_t out = op.attributes.integer(Attribute::OutFeatures);
    // PEFT draws A from kaiming_uniform with a = sqrt(5): uniform within 1 / sqrt(in), of which
    // this is the standard deviation.
    const Initializer normal{Initializer::Kind::Normal,
                             1 / std::sqrt(3.0 * static_cast<double>(in))};
    const int narrow = linear(op, "lora_A", input, in, lora_.rank, normal);
    const int wide = linear(op, "lora_B", narrow, lora_.rank, out, {Initializer::Kind::Zeros, 0});
    const Attributes width{{Attribute::OutFeatures, static_cast<double>(out)}};
    Attributes factor = width;
    factor.set(Attribute::Scale, lora_.alpha / lora_.rank);
    const int scaled = graph_.add({OperatorKind::Scale, op.module, factor, {}, {}}, {wide});
    return graph_.add({OperatorKind::Add, op.module, width, {}, {}}, {output, scaled});
  }

  const ModelGraph& base_;
  const LoraJob& lora_;
  ModelGraph graph_;
  std::vector<int> bases_;  // by parameter: itself, or the last one of the layer it adapts
};

}  // namespace

ModelGraph with_lora(const ModelGraph& base, const LoraJob& lora) {
  return LoraBuilder(base, lora).build();
}

}  // namespace shardplan
