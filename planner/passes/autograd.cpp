#include "planner/passes/autograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/passes/loss_chunks.h"
#include "planner/passes/recomputation.h"
#include "plans/error.h"
#include "plans/kernel_operands.h"

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
  Differentiator(const ModelGraph& graph, const TapeSettings& settings)
      : graph_(graph),
        settings_(settings),
        recomputation_(graph, settings.checkpointing),
        vertices_(static_cast<int>(boost::num_vertices(graph.dag))),
        forward_(vertices_),
        again_(vertices_),
        gradients_(vertices_, kNone),
        inputs_(vertices_),
        needs_gradient_(vertices_, false),
        gradient_written_(graph.parameters.size(), false) {
    for (int vertex = 0; vertex < vertices_; ++vertex) {
      inputs_[vertex] = graph.inputs_of(vertex);
      needs_gradient_[vertex] =
          std::ranges::any_of(inputs_[vertex], [&](int input) { return needs_gradient_[input]; }) ||
          std::ranges::any_of(op(vertex).parameters,
                              [&](int p) { return graph.parameters[p].trains(); });
    }
    if (!needs_gradient_.back()) throw FieldError("model.trainable", "no parameter is trained");
  }

  Tape run() {
    for (int vertex = 0; vertex < vertices_; ++vertex)
      forward(vertex);
    for (current_ = vertices_ - 1; current_ >= 0; --current_)
      backward(current_);
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p)
      if (graph_.parameters[p].trains() && !gradient_written_[p])
        throw InputError(
            fmt::format("parameter '{}' is trained, but the loss does not depend on it "
                        "(find_unused_parameters cannot be planned); freeze it by model.trainable",
                        graph_.parameters[p].name));
    tape_.loss = forward_[vertices_ - 1].output;
    return std::move(tape_);
  }

 private:
  enum class Pass { Forward, Backward, Again };

  /// Values that the forward kernel of a vertex makes.
  struct Results {
    int output = kNone;
    std::vector<int> statistics;
  };

  const Operator& op(int vertex) const { return graph_.dag[vertex]; }
  bool needs_gradient(int vertex) const { return needs_gradient_[vertex]; }

  int new_value(std::string name, Dtype dtype, std::int64_t elems) {
    tape_.values.push_back({std::move(name), dtype, elems, Category::Temporaries});
    users_.emplace_back();
    return static_cast<int>(tape_.values.size()) - 1;
  }
  /// An activation or its gradient: of the dtype that the job computes in.
  int new_value(std::string name, const TensorType& type) {
    return new_value(std::move(name), type.dtype == Dtype::Float32 ? settings_.dtype : type.dtype,
                     type.elements(settings_.sizes));
  }

  /// The only consumer may overwrite a value that nobody needs for backward, be it to compute it
  /// again.
  bool may_overwrite(int vertex, int slot) const {
    const int source = inputs_[vertex][slot];
    return boost::out_degree(source, graph_.dag) == 1 && op(source).kind != OperatorKind::Input &&
           !(recomputation_.again(vertex) && recomputation_.keeps_output(source)) &&
           !backward_reads(spec(op(source).kind), Role::Kind::Output, 0) &&
           !backward_reads(spec(op(vertex).kind), Role::Kind::Input, slot);
  }

  /// New values for what the forward kernel of `vertex` makes from inputs that are in `made`.
  Results new_results(int vertex, const std::vector<Results>& made) {
    const Operator& node = op(vertex);
    const int slot = spec(node.kind).in_place_input;
    Results results;
    results.output = slot >= 0 && may_overwrite(vertex, slot)
                         ? made[inputs_[vertex][slot]].output
                         : new_value(node.module + ".output", node.output);
    for (const TensorType& type : statistics_of(node.kind, node.attributes, node.output))
      results.statistics.push_back(
          new_value(fmt::format("{}.statistic{}", node.module, results.statistics.size()),
                    type.dtype, type.elements(settings_.sizes)));
    return results;
  }

  void forward(int vertex) {
    const OperatorSpec& catalogue = spec(op(vertex).kind);
    forward_[vertex] = new_results(vertex, forward_);
    if (catalogue.kind == OperatorKind::Input)
      tape_.inputs.push_back({vertex, forward_[vertex].output});
    if (catalogue.gradient_in_forward) {
      const int input = inputs_[vertex][0];
      check(may_overwrite(vertex, 0), "the loss is the only reader of the logits");
      set_gradient(input, forward_[input].output);
    }
    for (const KernelCall& call : catalogue.forward)
      launch(vertex, call, Pass::Forward);
  }

  void backward(int vertex) {
    const OperatorSpec& catalogue = spec(op(vertex).kind);
    if (catalogue.gradient_in_forward || gradients_[vertex] == kNone) return;
    if (catalogue.gradient_passes_through)
      for (const int input : inputs_[vertex])
        if (needs_gradient(input)) pass_gradient(input, gradients_[vertex]);
    for (const KernelCall& call : catalogue.backward)
      if (std::ranges::any_of(call.writes, [&](const Role& role) { return wanted(vertex, role); }))
        launch(vertex, call, Pass::Backward);
  }

  /// Runs the forward kernel of `vertex` again, and before it what its inputs need.
  void compute_again(int vertex) {
    if (again_[vertex].output != kNone) return;
    for (const int input : inputs_[vertex])
      output_for_backward(input);
    again_[vertex] = new_results(vertex, again_);
    for (const KernelCall& call : spec(op(vertex).kind).forward)
      launch(vertex, call, Pass::Again);
  }

  /// The values in which backward finds what forward made.
  int output_for_backward(int vertex) {
    if (recomputation_.keeps_output(vertex)) return forward_[vertex].output;
    compute_again(vertex);
    return again_[vertex].output;
  }
  int statistic_for_backward(int vertex, int index) {
    if (!recomputation_.again(vertex)) return forward_[vertex].statistics[index];
    compute_again(vertex);
    return again_[vertex].statistics[index];
  }

  /// Whether backward is to compute the result `role`.
  bool wanted(int vertex, const Role& role) const {
    if (role.kind == Role::Kind::InputGradient) return needs_gradient(inputs_[vertex][role.index]);
    return role.kind == Role::Kind::ParameterGradient && !absent(vertex, role) &&
           graph_.parameters[op(vertex).parameters[role.index]].trains();
  }

  /// True for a parameter, or its gradient, that this operator does without (bias).
  bool absent(int vertex, const Role& role) const {
    return (role.kind == Role::Kind::Parameter || role.kind == Role::Kind::ParameterGradient) &&
           role.index >= static_cast<int>(op(vertex).parameters.size());
  }

  void launch(int vertex, const KernelCall& call, Pass pass) {
    TapeLaunch launch{.kernel = call.kernel,
                      .attributes = launch_attributes(vertex),
                      .vertex = vertex,
                      .recomputation = pass == Pass::Again,
                      .reads = {},
                      .writes = {}};
    for (const Role& role : call.reads)
      if (!absent(vertex, role)) launch.reads.push_back(operand(vertex, role, pass));
    std::vector<std::pair<int, int>>
        sums;  // {vertex, value}: gradients that need an addition after
    for (const Role& role : call.writes) {
      if (absent(vertex, role)) continue;
      const std::optional<TapeOperand> target = result(vertex, call, role, pass, launch, sums);
      if (target) launch.writes.push_back(*target);
    }
    (pass == Pass::Forward ? tape_.forward : tape_.backward).push_back(std::move(launch));
    for (const auto& [owner, value] : sums)
      add_into(owner, value);
  }

  Attributes launch_attributes(int vertex) const {
    Attributes attributes = op(vertex).attributes;
    set_rows(vertex, attributes);
    const OperatorKind kind = op(vertex).kind;
    if (is_attention(spec(kind).forward.front().kernel))
      attributes.set(Attribute::BlockRows,
                     static_cast<double>(attention_block_rows(settings_.profile)));
    if (kind == OperatorKind::CrossEntropy)
      attributes.set(Attribute::LossScale, settings_.loss_scale);
    return attributes;
  }

  /// Rows of the output (of a loss: of its input), and those of an input that has others.
  void set_rows(int vertex, Attributes& attributes) const {
    const auto& inputs = inputs_[vertex];
    const bool scalar = op(vertex).output.dimensions.size() < 2;
    const std::int64_t rows = op(scalar ? inputs[0] : vertex).output.rows(settings_.sizes);
    attributes.set(Attribute::Batch, static_cast<double>(settings_.sizes.batch));
    attributes.set(Attribute::Time, static_cast<double>(rows));
    for (const int input : inputs)
      if (const std::int64_t source = op(input).output.rows(settings_.sizes); source != rows)
        attributes.set(Attribute::SourceTime, static_cast<double>(source));
  }

  /// Where a kernel of the pass finds what it reads, or puts its output and statistics.
  TapeOperand operand(int vertex, const Role& role, Pass pass) {
    using Kind = TapeOperand::Kind;
    const bool forward = pass == Pass::Forward;
    switch (role.kind) {
      case Role::Kind::Parameter: return {Kind::Parameter, op(vertex).parameters[role.index]};
      case Role::Kind::OutputGradient: return {Kind::Value, gradients_[vertex]};
      case Role::Kind::Input: {
        const int input = inputs_[vertex][role.index];
        return {Kind::Value, forward ? forward_[input].output : output_for_backward(input)};
      }
      case Role::Kind::Output:
        if (pass == Pass::Backward) return {Kind::Value, output_for_backward(vertex)};
        return {Kind::Value, (forward ? forward_ : again_)[vertex].output};
      case Role::Kind::Statistic:
        if (pass == Pass::Backward)
          return {Kind::Value, statistic_for_backward(vertex, role.index)};
        return {Kind::Value, (forward ? forward_ : again_)[vertex].statistics[role.index]};
      default: break;
    }
    check(false, "kernels read inputs, outputs, parameters, statistics and output gradients");
    return {};
  }

  /// Where a kernel puts the result `role`; nothing for a workspace that the profile does not need.
  std::optional<TapeOperand> result(int vertex, const KernelCall& call, const Role& role, Pass pass,
                                    TapeLaunch& launch, std::vector<std::pair<int, int>>& sums) {
    using Kind = TapeOperand::Kind;
    switch (role.kind) {
      case Role::Kind::Workspace: {
        const Extent elems = workspace_elems(call.kernel, launch.attributes, settings_.profile);
        if (elems == Extent(0)) return std::nullopt;
        return TapeOperand{Kind::Value, new_value(op(vertex).module + ".workspace", Dtype::Float32,
                                                  elems.value())};
      }
      case Role::Kind::ParameterGradient:
        if (!wanted(vertex, role)) return unused(vertex, role);
        return parameter_gradient(op(vertex).parameters[role.index], launch);
      case Role::Kind::InputGradient:
        if (!wanted(vertex, role)) return unused(vertex, role);
        return TapeOperand{Kind::Value, input_gradient(vertex, call, role.index, launch, sums)};
      default: return operand(vertex, role, pass);
    }
  }

  /// A place for what a kernel computes beside what is wanted of it.
  TapeOperand unused(int vertex, const Role& role) {
    const std::string name = op(vertex).module + ".unused_gradient";
    if (role.kind == Role::Kind::InputGradient)
      return {TapeOperand::Kind::Value, new_value(name, op(inputs_[vertex][role.index]).output)};
    const Parameter& parameter = graph_.parameters[op(vertex).parameters[role.index]];
    return {TapeOperand::Kind::Value, new_value(name, settings_.dtype, parameter.elements())};
  }

  TapeOperand parameter_gradient(int parameter, TapeLaunch& launch) {
    const TapeOperand target{TapeOperand::Kind::ParameterGradient, parameter};
    if (gradient_written_[parameter]) launch.reads.push_back(target);
    gradient_written_[parameter] = true;
    return target;
  }

  int input_gradient(int vertex, const KernelCall& call, int slot, TapeLaunch& launch,
                     std::vector<std::pair<int, int>>& sums) {
    const int input = inputs_[vertex][slot];
    const int own = gradients_[vertex];
    const int sum = gradients_[input];
    if (spec(op(vertex).kind).gradient_in_forward) return sum;
    if (sum != kNone && sum != own && exclusive(sum, input) && accumulates(call.kernel)) {
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
    tape_.backward.push_back({.kernel = Kernel::Add,
                              .attributes = launch_attributes(vertex),
                              .vertex = vertex,
                              .reads = {{Kind::Value, gradients_[vertex]}, {Kind::Value, summand}},
                              .writes = {{Kind::Value, target}}});
    set_gradient(vertex, target);
  }
  void add_into(int vertex, int value) { add_into(vertex, value, value); }

  const ModelGraph& graph_;
  const TapeSettings& settings_;
  const Recomputation recomputation_;
  const int vertices_;
  int current_ = 0;  // vertex whose backward runs; vertices from it on have read their gradients
  Tape tape_;
  std::vector<Results> forward_;  // by vertex
  std::vector<Results> again_;    // by vertex: what backward computes again
  std::vector<int> gradients_;    // value of the gradient of each vertex's output
  std::vector<std::vector<int>> inputs_;
  std::vector<bool> needs_gradient_;     // by vertex
  std::vector<std::vector<int>> users_;  // by value: vertices whose gradient it is
  std::vector<bool> gradient_written_;   // by parameter
};

/// Gives launches of kernels that take float32 alone a place for wide copies of narrow operands.
class Widening {
 public:
  Widening(Tape& tape, const ModelGraph& graph, const TapeSettings& settings)
      : tape_(tape), graph_(graph), settings_(settings) {}

  void run() {
    if (settings_.dtype == Dtype::Float32) return;
    for (auto* launches : {&tape_.forward, &tape_.backward})
      for (TapeLaunch& launch : *launches)
        if (widens(launch.kernel, settings_.profile)) add_workspace(launch);
  }

 private:
  void add_workspace(TapeLaunch& launch) {
    std::vector<TapeOperand> narrow;
    for (const auto* operands : {&launch.reads, &launch.writes})
      for (const TapeOperand& operand : *operands)
        if (is_narrow(operand) && std::ranges::find(narrow, operand) == narrow.end())
          narrow.push_back(operand);
    std::int64_t elems = 0;
    for (const TapeOperand& operand : narrow)
      elems += elems_of(operand);
    if (elems == 0) return;
    launch.writes.push_back({TapeOperand::Kind::Value, static_cast<int>(std::ssize(tape_.values))});
    tape_.values.push_back(
        {graph_.dag[launch.vertex].module + ".wide", Dtype::Float32, elems, Category::Temporaries});
  }

  bool is_narrow(const TapeOperand& operand) const {
    return operand.kind != TapeOperand::Kind::Value ||
           tape_.values[operand.index].dtype == settings_.dtype;
  }
  std::int64_t elems_of(const TapeOperand& operand) const {
    if (operand.kind != TapeOperand::Kind::Value)
      return graph_.parameters[operand.index].elements();
    return operand.elems == TapeOperand::kAll ? tape_.values[operand.index].elems : operand.elems;
  }

  Tape& tape_;
  const ModelGraph& graph_;
  const TapeSettings& settings_;
};

/// What backward reads of forward's results, kept or computed again.
void mark_activations(Tape& tape) {
  enum class Made { Elsewhere, Forward, Again };
  std::vector<Made> made(tape.values.size(), Made::Elsewhere);
  for (const TapeLaunch& launch : tape.forward)
    for (const TapeOperand& write : launch.writes)
      if (write.kind == TapeOperand::Kind::Value) made[write.index] = Made::Forward;
  for (const TapeLaunch& launch : tape.backward) {
    for (const TapeOperand& read : launch.reads)
      if (read.kind == TapeOperand::Kind::Value &&
          (made[read.index] == Made::Forward ||
           (made[read.index] == Made::Again && !launch.recomputation)))
        tape.values[read.index].category = Category::Activations;
    if (launch.recomputation)
      for (const TapeOperand& write : launch.writes)
        made[write.index] = Made::Again;
  }
  for (const TapeInput& input : tape.inputs)
    tape.values[input.value].category = Category::Inputs;
}

}  // namespace

Tape autograd(const ModelGraph& graph, const TapeSettings& settings) {
  check(boost::num_vertices(graph.dag) > 2 && graph.dag[0].kind == OperatorKind::Input &&
            graph.dag[1].kind == OperatorKind::Input,
        "a graph starts with its tokens and targets");
  Tape tape = Differentiator(graph, settings).run();
  if (settings.loss_chunks > 1) cut_loss(tape, graph, settings.loss_chunks);
  Widening(tape, graph, settings).run();
  mark_activations(tape);
  return tape;
}

}  // namespace shardplan
