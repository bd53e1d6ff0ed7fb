#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "planner/families/block.h"
#include "plans/model_graph.h"

namespace shardplan {

/// How a norm treats a row: as `groups` parts, `channels` wide each, with one weight for all or
/// with a weight of their own.
struct NormShape {
  std::int64_t channels = 0;
  std::int64_t groups = 1;
  bool own_weights = false;
};

/// A window that moves over an image, or over a sequence when the height is 1.
struct Window {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t size = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;

  Attributes attributes() const;
};

/// Adds the modules of a Hugging Face model to a graph, in the order in which the model lists its
/// parameters. Every function but module() returns the operator that runs the new module; the
/// caller adds it to the graph where the model's forward calls it.
class ModuleBuilder {
 public:
  /// Matrices start from a normal distribution of this deviation, unless said otherwise.
  ModuleBuilder(ModelGraph& graph, double standard_deviation)
      : graph_(graph), standard_deviation_(standard_deviation) {}

  ModelGraph& graph() { return graph_; }
  double standard_deviation() const { return standard_deviation_; }

  void module(const std::string& path, std::string_view class_name);

  Operator embedding(const std::string& path, std::int64_t rows, std::int64_t channels,
                     std::string_view class_name = "Embedding");
  /// Learned positions; the first token has number `offset`.
  Operator position_embedding(const std::string& path, std::int64_t rows, std::int64_t channels,
                              std::int64_t offset = 0, std::string_view class_name = "Embedding");
  /// Positions in a parameter `name` of the module at `path`, without a module of their own.
  Operator position_parameter(const std::string& path, std::string_view name, std::int64_t rows,
                              std::int64_t channels);
  /// The weight is [out, in].
  Operator linear(const std::string& path, std::int64_t in, std::int64_t out, Bias bias,
                  std::string_view class_name = "Linear");
  /// GPT-2's own class: the weight is [in, out], and there is a bias.
  Operator conv1d(const std::string& path, std::int64_t in, std::int64_t out,
                  double standard_deviation);
  /// A linear module that uses the weight of `embedding`.
  Operator tied_head(const std::string& path, const Operator& embedding, Bias bias = Bias::No);
  Operator norm(const std::string& path, const Norm& norm, const NormShape& shape);
  /// A parameter `name` [experts, out, in] of the module at `path`.
  Operator expert_linear(const std::string& path, std::string_view name, std::int64_t experts,
                         std::int64_t in, std::int64_t out);
  Operator convolution(const std::string& path, std::string_view class_name, std::int64_t in,
                       std::int64_t out, const Window& window, Bias bias);
  /// A learned token, parameter `name` of the module at `path`, before the others.
  Operator leading_token(const std::string& path, std::string_view name,
                         std::vector<std::int64_t> shape);

  /// A matrix [in, out] that is a parameter `name` of the module at `path`.
  Operator projection(const std::string& path, std::string_view name, std::int64_t in,
                      std::int64_t out);
  /// A bias outside of a module of its own, for `op`.
  void add_bias(Operator& op, const std::string& name, std::int64_t elements);
  /// A parameter that no operator reads: the class has it, training leaves it alone.
  void unused(const std::string& name, std::vector<std::int64_t> shape);

 private:
  int parameter(const std::string& name, std::vector<std::int64_t> shape, Initializer initializer);
  int matrix(const std::string& name, std::vector<std::int64_t> shape);

  ModelGraph& graph_;
  double standard_deviation_;
};

/// Adds what stands at the two ends of a language model: its inputs, tokens and targets, and the
/// mean cross-entropy of the logits against the targets.
struct ModelInputs {
  int tokens;
  int targets;
};
ModelInputs add_inputs(ModelGraph& graph);
int add_loss(ModelGraph& graph, int logits, int targets, std::int64_t vocabulary);

/// Adds an operator without parameters.
int add(ModelGraph& graph, OperatorKind kind, const std::string& module, Attributes attributes,
        const std::vector<int>& inputs);
/// The same with the width of rows as its only constant.
int add(ModelGraph& graph, OperatorKind kind, const std::string& module, std::int64_t channels,
        const std::vector<int>& inputs);

}  // namespace shardplan
