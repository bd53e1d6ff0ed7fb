#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "planner/torch/graph.h"
#include "planner/torch/saved.h"
#include "planner/torch/setup.h"
#include "plans/operators.h"

namespace shardplan::torch {

/// What of PyTorch's operators depends on where and in what they run.
struct AtenSettings {
  Category gradients = Category::UnshardedGradients;  // what gradients of parameters count as
  bool cpu = false;               // statistics of LayerNorm in the input's dtype, no random states
  bool fake = false;              // FakeTensorMode: kernels allocate nothing inside, and no tensor
                                  // is added to in place
  std::optional<Dtype> autocast;  // what torch.autocast casts operands of products to
  SdpaBackend backend = SdpaBackend::Flash;
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
  /// The same with columns added to, or cut off (torch.nn.functional.pad).
  Tensor pad(const Tensor& x, std::int64_t elems);
  /// torch.nn.functional.scaled_dot_product_attention of queries, keys and values, causal where
  /// there is no mask. `sizes` has Batch, Time, Heads, KvHeads and HeadDim.
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                   const Attributes& sizes);
  /// Parts of a tensor without a copy (torch.split); its backward joins them.
  Tensors split(const Tensor& x, const std::vector<std::int64_t>& elems);
  /// The same of a leaf, whose gradient `make_gradient` makes.
  Tensors split_leaf(const Tensor& x, const std::vector<std::int64_t>& elems,
                     std::function<Tensor()> make_gradient);
  /// Product of two matrices that are both results; of `elems`.
  Tensor matmul(const Tensor& x, const Tensor& y, std::int64_t elems);
  Tensor softmax(const Tensor& x);
  /// native_dropout, with a mask of one byte for each element.
  Tensor dropout(const Tensor& x);
  /// The same elements once more, for each of `times` readers
  /// (repeat_interleave); none for one.
  Tensor repeat(const Tensor& x, std::int64_t times);
  Tensor log_softmax(const Tensor& x);
  /// Mean negative log-likelihood; a scalar.
  Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets);

  /// An operator whose result the caller makes: for what stands outside of gradients.
  Tensor constant(std::string_view name, std::int64_t elems, Dtype dtype,
                  Category category = Category::Activations);
  /// The same tensors behind a node that runs `done` once gradients of all have come.
  Tensors identity(const std::string& name, const Tensors& tensors, std::function<void()> done);

  /// A checkpointed region is computed again.
  bool recomputes() const { return again_ != nullptr; }
  /// An early stop: everything that backward needs has been computed again.
  bool stopped() const { return again_ != nullptr && again_->complete(); }

  bool autocasts() const { return settings_.autocast.has_value(); }
  /// What an operator reads that CUDA's autocast runs in float32.
  Tensor wide_operand(const Tensor& x);
  /// The end of torch.autocast: its copies of weights go, but for what backward keeps.
  void leave_autocast() { casts_.clear(); }

  /// Within its checkpointed region, what operators save of their own making from here on is kept,
  /// or no longer.
  void keep_results(bool keep) { keeps_results_ = keep; }
  /// A result of such operators; it is kept too.
  Tensor keep_result(const Tensor& result);

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
    leave_autocast();
    module_ = module;
    again_ = nullptr;
  }

  bool skips() const { return stopped() || (again_ != nullptr && keeps_results_); }
  Category category() const;
  std::string name_of(std::string_view what) const;

  Tensor make(std::string_view what, std::int64_t elems, Dtype dtype);
  Tensor like(std::string_view what, const Tensor& x) { return make(what, x.elems, x.dtype); }
  Tensor gradient_of(const Tensor& parameter, std::string_view what);
  Tensor to(const Tensor& x, Dtype dtype, const std::function<Tensor()>& make_gradient);
  void launch(std::string_view what, const Tensors& reads, const Tensors& writes,
              Kernel kernel = Kernel::Elementwise, const Attributes& sizes = {});
  Tensor operand(const Tensor& x);
  Tensor bmm(const Tensor& x, const Tensor& y, std::int64_t elems);
  Tensor flash_attention(Tensors heads, const Attributes& sizes);
  Tensor efficient_attention(Tensors heads, const Tensor& mask, const Attributes& sizes);
  Tensor math_attention(const Tensors& heads, const Tensor& mask, const Attributes& sizes);
  Tensor causal_mask(const Attributes& sizes);
  Tensor additive_mask(const Tensor& mask, Dtype dtype);
  Tensor safe_softmax(const Tensor& x);
  struct Fused;
  Tensor fused_attention(const Fused& kernel, const Attributes& sizes);
  Tensor weight_operand(const Tensor& weight);
  SavedTensor save(const Tensor& tensor, bool needed = true);
  void record(std::string_view what, Tensor& result, const Tensors& inputs, Backward backward);

  Host& host_;
  Graph& graph_;
  const AtenSettings settings_;
  std::string module_;
  std::shared_ptr<Checkpoint> checkpoint_;  // of the region that runs forward
  Checkpoint* again_ = nullptr;             // of the region that is computed again
  bool keeps_results_ = false;
  std::map<const Storage*, Tensor> casts_;  // by weight: autocast's cache
};

}  // namespace shardplan::torch
