#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plans/model_graph.h"

namespace shardplan {

enum class Bias { No, Yes };

/// Adds the modules of a Hugging Face model to a graph, in the order in which the model lists its
/// parameters. Every function but module() returns the operator that runs the new module; the
/// caller adds it to the graph where the model's forward calls it.
class ModuleBuilder {
 public:
  /// Matrices start from a normal distribution of this deviation, unless said otherwise.
  ModuleBuilder(ModelGraph& graph, double standard_deviation)
      : graph_(graph), standard_deviation_(standard_deviation) {}

  void module(const std::string& path, std::string_view class_name);

  Operator embedding(const std::string& path, std::int64_t rows, std::int64_t channels);
  Operator position_embedding(const std::string& path, std::int64_t rows, std::int64_t channels);
  /// The weight is [out, in].
  Operator linear(const std::string& path, std::int64_t in, std::int64_t out, Bias bias);
  /// GPT-2's own class: the weight is [in, out], and there is a bias.
  Operator conv1d(const std::string& path, std::int64_t in, std::int64_t out,
                  double standard_deviation);
  /// A linear module without bias that uses the weight of `embedding`.
  Operator tied_head(const std::string& path, const Operator& embedding);
  /// Normalises each of `groups` parts of a row, `channels` wide each.
  Operator rms_norm(const std::string& path, std::string_view class_name, std::int64_t channels,
                    double epsilon, std::int64_t groups = 1);
  Operator layer_norm(const std::string& path, std::int64_t channels, double epsilon);

 private:
  int parameter(const std::string& name, std::vector<std::int64_t> shape, Initializer initializer);

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

}  // namespace shardplan
