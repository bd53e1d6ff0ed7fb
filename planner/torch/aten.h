#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "planner/torch/graph.h"
#include "planner/torch/saved.h"
#include "plans/operators.h"

namespace shardplan::torch {

/// What of PyTorch's operators depends on where and in what they run.
struct AtenSettings {
  Category gradients = Category::UnshardedGradients;  // what gradients of parameters count as
  bool narrow_layer_norm_statistics = false;  // in the input's dtype (CPU) instead of float32
  bool flash_attention = true;  // backward sums the gradient of queries in float32 (CUDA)
};

/// What a pointwise function of one tensor keeps for backward, and what backward allocates beside
/// its result: tensors of the input's size, all at once.
struct Pointwise {
  std::string_view name;
  enum class Saves { Nothing, Input, Output } saves = Saves::Nothing;
  int temporaries = 0;
};

/// PyTorch's operators as its eager mode runs them: each allocates its results, launches kernels
/// and records what backward needs (derivatives.yaml says what).
class Aten {
 public:
  Aten(Host& host, Graph& graph, AtenSettings settings)
      : host_(host), graph_(graph), settings_(settings) {}

  Host& host() { return host_; }
  Graph& graph() { return graph_; }
  /// The module whose forward runs: what results are named after.
  void enter_module(std::string path) { module_ = std::move(path); }

  Tensor to(const Tensor& x, Dtype dtype);
  Tensor pointwise(const Tensor& x, const Pointwise& function);
  Tensor add(const Tensor& x, const Tensor& y);
  /// A smaller factor is spread over the larger one.
  Tensor mul(const Tensor& x, const Tensor& y);
  /// Mean of each of `rows` rows.
  Tensor mean(const Tensor& x, std::int64_t rows);
  /// Columns of rows, without a copy; its backward pads with zeros.
  Tensor slice(const Tensor& x, std::int64_t elems);
  Tensor cat(const Tensors& parts);
  Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Attributes& sizes);
  Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t rows);
  /// Rows of a table; `rows` is how many are read. Gradients of rows that serve several sequences
  /// are summed.
  Tensor embedding(const Tensor& indices, const Tensor& weight, std::int64_t elems);
  /// Fused attention with a log-sum-exp for every one of `rows` rows.
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t rows,
                   const Attributes& sizes);
  /// Parts of a tensor without a copy (torch.split); its backward joins them.
  Tensors split(const Tensor& x, const std::vector<std::int64_t>& elems);
  /// The same of a leaf, whose gradient `make_gradient` makes.
  Tensors split_leaf(const Tensor& x, const std::vector<std::int64_t>& elems,
                     std::function<Tensor()> make_gradient);
  Tensor log_softmax(const Tensor& x);
  /// Mean negative log-likelihood; a scalar.
  Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets);

  /// An operator whose result the caller makes: for what stands outside of gradients.
  Tensor constant(std::string_view name, std::int64_t elems, Dtype dtype,
                  Category category = Category::Activations);
  /// The same tensors behind a node that runs `done` once gradients of all have come.
  Tensors identity(const std::string& name, const Tensors& tensors, std::function<void()> done);

  /// Runs `region` so that nothing it saves is kept; `again` runs it in backward.
  template <typename Region>
  Tensor checkpoint(const Region& region) {
    auto checkpoint = std::make_shared<Checkpoint>();
    checkpoint->keep([this, region, checkpoint = checkpoint.get()] { again(*checkpoint, region); });
    checkpoint_ = checkpoint;
    Tensor result = region();
    checkpoint_ = nullptr;
    return result;
  }

 private:
  template <typename Region>
  void again(Checkpoint& checkpoint, const Region& region) {
    again_ = &checkpoint;
    const std::string module = module_;
    region();
    module_ = module;
    again_ = nullptr;
  }

  /// An early stop: everything that backward needs has been computed again.
  bool stopped() const { return again_ != nullptr && again_->complete(); }
  Category category() const;
  std::string name_of(std::string_view what) const;

  Tensor make(std::string_view what, std::int64_t elems, Dtype dtype);
  Tensor like(std::string_view what, const Tensor& x) { return make(what, x.elems, x.dtype); }
  Tensor gradient_of(const Tensor& parameter, std::string_view what);
  void launch(std::string_view what, const Tensors& reads, const Tensors& writes,
              Kernel kernel = Kernel::Elementwise, const Attributes& sizes = {});
  SavedTensor save(const Tensor& tensor, bool needed = true);
  void record(std::string_view what, Tensor& result, const Tensors& inputs, Backward backward);

  Host& host_;
  Graph& graph_;
  const AtenSettings settings_;
  std::string module_;
  std::shared_ptr<Checkpoint> checkpoint_;  // of the region that runs forward
  Checkpoint* again_ = nullptr;             // of the region that is computed again
};

}  // namespace shardplan::torch
