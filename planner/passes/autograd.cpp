#include "planner/passes/autograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "plans/error.h"

namespace shardplan {
namespace {

constexpr int kNone = -1;

/// True when a backward call of `op` reads the operand of that kind (and index, for inputs).
bool backward_reads(const OperatorSpec& op, Role::Kind kind, int index) {
  for (const KernelCall& call : op.backward)
    for (const Role& role : call.reads)
      if (role.kind == kind && role.index == index) return true;
  return false;
}

class Differentiator {
 public:
  Differentiator(const ModelGraph& graph, Sizes sizes, Profile profile)
      : graph_(graph),
        sizes_(sizes),
        profile_(profile),
        vertices_(static_cast<int>(boost::num_vertices(graph.dag))),
        outputs_(vertices_, kNone),
        gradients_(vertices_, kNone),
        statistics_(vertices_),
        inputs_(vertices_),
        gradient_written_(graph.parameters.size(), false) {
    for (int vertex = 0; vertex < vertices_; ++vertex)
      inputs_[vertex] = graph.inputs_of(vertex);
  }

  Tape run() {
    for (int vertex = 0; vertex < vertices_; ++vertex)
      forward(vertex);
    for (current_ = vertices_ - 1; current_ >= 0; --current_)
      backward(current_);
    mark_activations();
    tape_.tokens = outputs_[0];
    tape_.targets = outputs_[1];
    tape_.loss = outputs_[vertices_ - 1];
    return std::move(tape_);
  }

 private:
  const Operator& op(int vertex) const { return graph_.dag[vertex]; }
  bool needs_gradient(int vertex) const { return op(vertex).kind != OperatorKind::Input; }

  int new_value(std::string name, Dtype dtype, std::int64_t elems) {
    tape_.values.push_back({std::move(name), dtype, elems, Category::Temporaries});
    users_.emplace_back();
    return static_cast<int>(tape_.values.size()) - 1;
  }
  int new_value(std::string name, const TensorType& type) {
    return new_value(std::move(name), type.dtype, type.elements(sizes_));
  }

  /// The only consumer may overwrite a value that nobody needs for backward.
  bool may_overwrite(int vertex, int slot) const {
    const int source = inputs_[vertex][slot];
    return boost::out_degree(source, graph_.dag) == 1 && needs_gradient(source) &&
           !backward_reads(spec(op(source).kind), Role::Kind::Output, 0) &&
           !backward_reads(spec(op(vertex).kind), Role::Kind::Input, slot);
  }

  void forward(int vertex) {
    const Operator& node = op(vertex);
    const OperatorSpec& catalogue = spec(node.kind);
    const bool in_place =
        catalogue.in_place_input >= 0 && may_overwrite(vertex, catalogue.in_place_input);
    outputs_[vertex] = in_place ? outputs_[inputs_[vertex][catalogue.in_place_input]]
                                : new_value(node.module + ".output", node.output);
    for (const TensorType& type : statistics_of(node.kind, node.attributes))
      statistics_[vertex].push_back(
          new_value(fmt::format("{}.statistic{}", node.module, statistics_[vertex].size()), type));
    if (catalogue.gradient_in_forward) {
      check(may_overwrite(vertex, 0), "the loss is the only reader of the logits");
      gradients_[inputs_[vertex][0]] = outputs_[inputs_[vertex][0]];
      users_[outputs_[inputs_[vertex][0]]].push_back(inputs_[vertex][0]);
    }
    for (const KernelCall& call : catalogue.forward)
      launch(vertex, call, tape_.forward);
  }

  void backward(int vertex) {
    const OperatorSpec& catalogue = spec(op(vertex).kind);
    if (catalogue.gradient_in_forward || gradients_[vertex] == kNone) return;
    if (catalogue.gradient_passes_through)
      for (const int input : inputs_[vertex])
        if (needs_gradient(input)) pass_gradient(input, gradients_[vertex]);
    for (const KernelCall& call : catalogue.backward)
      launch(vertex, call, tape_.backward);
  }

  /// Emits `call`, unless it is about an absent parameter or an input without gradient.
  void launch(int vertex, const KernelCall& call, std::vector<TapeLaunch>& list) {
    for (const Role& role : call.writes) {
      if (role.kind == Role::Kind::ParameterGradient && !has_parameter(vertex, role)) return;
      if (role.kind == Role::Kind::InputGradient && !needs_gradient(inputs_[vertex][role.index]))
        return;
    }
    TapeLaunch launch{
        .kernel = call.kernel, .attributes = launch_attributes(vertex), .vertex = vertex};
    for (const Role& role : call.reads)
      if (role.kind != Role::Kind::Parameter || has_parameter(vertex, role))
        launch.reads.push_back(operand(vertex, role));
    std::vector<std::pair<int, int>>
        sums;  // {vertex, value}: gradients that need an addition after
    for (const Role& role : call.writes) {
      const std::optional<TapeOperand> target = result(vertex, call, role, launch, sums);
      if (target) launch.writes.push_back(*target);
    }
    list.push_back(std::move(launch));
    for (const auto& [owner, value] : sums)
      add_into(owner, value);
  }

  bool has_parameter(int vertex, const Role& role) const {
    return role.index < static_cast<int>(op(vertex).parameters.size());
  }

  Attributes launch_attributes(int vertex) const {
    Attributes attributes = op(vertex).attributes;
    attributes.set(Attribute::Batch, static_cast<double>(sizes_.batch));
    attributes.set(Attribute::Time, static_cast<double>(sizes_.time));
    const OperatorKind kind = op(vertex).kind;
    if (kind == OperatorKind::Attention || kind == OperatorKind::PackedAttention)
      attributes.set(Attribute::BlockRows, static_cast<double>(attention_block_rows(profile_)));
    if (kind == OperatorKind::CrossEntropy) attributes.set(Attribute::GradientScale, 1);
    return attributes;
  }

  TapeOperand operand(int vertex, const Role& role) const {
    using Kind = TapeOperand::Kind;
    switch (role.kind) {
      case Role::Kind::Input: return {Kind::Value, outputs_[inputs_[vertex][role.index]]};
      case Role::Kind::Output: return {Kind::Value, outputs_[vertex]};
      case Role::Kind::Parameter: return {Kind::Parameter, op(vertex).parameters[role.index]};
      case Role::Kind::Statistic: return {Kind::Value, statistics_[vertex][role.index]};
      case Role::Kind::OutputGradient: return {Kind::Value, gradients_[vertex]};
      default: break;
    }
    check(false, "kernels read inputs, outputs, parameters, statistics and output gradients");
    return {};
  }

  /// Where a kernel puts the result `role`; nothing for a workspace that the profile does not need.
  std::optional<TapeOperand> result(int vertex, const KernelCall& call, const Role& role,
                                    TapeLaunch& launch, std::vector<std::pair<int, int>>& sums) {
    using Kind = TapeOperand::Kind;
    const std::string& module = op(vertex).module;
    switch (role.kind) {
      case Role::Kind::Workspace: {
        const Bytes bytes = workspace_bytes(call.kernel, launch.attributes, profile_);
        if (bytes == 0) return std::nullopt;
        return TapeOperand{Kind::Value,
                           new_value(module + ".workspace", Dtype::Float32, bytes / 4)};
      }
      case Role::Kind::ParameterGradient: {
        const int parameter = op(vertex).parameters[role.index];
        const TapeOperand target{Kind::ParameterGradient, parameter};
        if (gradient_written_[parameter]) launch.reads.push_back(target);
        gradient_written_[parameter] = true;
        return target;
      }
      case Role::Kind::InputGradient:
        return TapeOperand{Kind::Value, input_gradient(vertex, call, role.index, launch, sums)};
      default: return operand(vertex, role);
    }
  }

  int input_gradient(int vertex, const KernelCall& call, int slot, TapeLaunch& launch,
                     std::vector<std::pair<int, int>>& sums) {
    const int input = inputs_[vertex][slot];
    const int own = gradients_[vertex];
    const int sum = gradients_[input];
    if (spec(op(vertex).kind).gradient_in_forward) return sum;
    if (sum != kNone && sum != own && exclusive(sum, input)) {
      launch.reads.push_back({TapeOperand::Kind::Value, sum});
      return sum;
    }
    const OperatorSpec& catalogue = spec(op(vertex).kind);
    const bool last_reader = &call == &catalogue.backward.back();
    if (sum == kNone && catalogue.in_place_input == slot && last_reader && exclusive(own, vertex)) {
      set_gradient(input, own);
      return own;
    }
    const int fresh = new_value(op(input).module + ".gradient", op(input).output);
    if (sum == kNone)
      set_gradient(input, fresh);
    else
      sums.emplace_back(input, fresh);
    return fresh;
  }

  /// True when no vertex but `owner` still has to read this gradient.
  bool exclusive(int value, int owner) const {
    return std::ranges::all_of(users_[value],
                               [&](int user) { return user == owner || user >= current_; });
  }

  void set_gradient(int vertex, int value) {
    gradients_[vertex] = value;
    users_[value].push_back(vertex);
  }

  /// The gradient of `vertex` gets `value` as one more summand, by reference where it is the first.
  void pass_gradient(int vertex, int value) {
    if (gradients_[vertex] == kNone) {
      set_gradient(vertex, value);
      return;
    }
    add_into(vertex, new_value(op(vertex).module + ".gradient", op(vertex).output), value);
  }

  /// gradient of `vertex` := `summand` + the gradient so far, stored in `target`.
  void add_into(int vertex, int target, int summand) {
    using Kind = TapeOperand::Kind;
    Attributes attributes = op(vertex).attributes;
    attributes.set(Attribute::Batch, static_cast<double>(sizes_.batch));
    attributes.set(Attribute::Time, static_cast<double>(sizes_.time));
    tape_.backward.push_back({.kernel = Kernel::Add,
                              .attributes = std::move(attributes),
                              .vertex = vertex,
                              .reads = {{Kind::Value, gradients_[vertex]}, {Kind::Value, summand}},
                              .writes = {{Kind::Value, target}}});
    set_gradient(vertex, target);
  }
  void add_into(int vertex, int value) { add_into(vertex, value, value); }

  void mark_activations() {
    std::vector<bool> made_forward(tape_.values.size(), false);
    for (const TapeLaunch& launch : tape_.forward)
      for (const TapeOperand& write : launch.writes)
        made_forward[write.index] = true;
    for (const TapeLaunch& launch : tape_.backward)
      for (const TapeOperand& read : launch.reads)
        if (read.kind == TapeOperand::Kind::Value && made_forward[read.index])
          tape_.values[read.index].category = Category::Activations;
    for (const int input : {outputs_[0], outputs_[1]})
      tape_.values[input].category = Category::Inputs;
  }

  const ModelGraph& graph_;
  const Sizes sizes_;
  const Profile profile_;
  const int vertices_;
  int current_ = 0;  // vertex whose backward runs; vertices from it on have read their gradients
  Tape tape_;
  std::vector<int> outputs_;    // value of each vertex
  std::vector<int> gradients_;  // value of the gradient of each vertex's output
  std::vector<std::vector<int>> statistics_;
  std::vector<std::vector<int>> inputs_;
  std::vector<std::vector<int>> users_;  // by value: vertices whose gradient it is
  std::vector<bool> gradient_written_;   // by parameter
};

}  // namespace

Tape autograd(const ModelGraph& graph, Sizes sizes, Profile profile) {
  check(boost::num_vertices(graph.dag) > 2 && graph.dag[0].kind == OperatorKind::Input &&
            graph.dag[1].kind == OperatorKind::Input,
        "a graph starts with its tokens and targets");
  return Differentiator(graph, sizes, profile).run();
}

}  // namespace shardplan
