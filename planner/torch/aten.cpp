#include "planner/torch/aten.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace shardplan::torch {
namespace {

/// Type promotion of floating-point operands.
Dtype wider(const Tensor& x, const Tensor& y) {
  return size_of(x.dtype) >= size_of(y.dtype) ? x.dtype : y.dtype;
}

}  // namespace

Category Aten::category() const {
  return again_ == nullptr && host_.phase() == Phase::Backward ? Category::Temporaries
                                                               : Category::Activations;
}

std::string Aten::name_of(std::string_view what) const {
  return fmt::format("{}.{}", module_, what);
}

Tensor Aten::make(std::string_view what, std::int64_t elems, Dtype dtype) {
  Tensor tensor{.storage = nullptr, .elems = elems, .dtype = dtype, .kept = keeps_results_};
  if (!skips())
    tensor.storage = host_.allocate(
        {.name = name_of(what), .category = category(), .elems = elems, .dtype = dtype});
  return tensor;
}

Tensor Aten::constant(std::string_view name, std::int64_t elems, Dtype dtype, Category category) {
  Tensor tensor{.storage = nullptr, .elems = elems, .dtype = dtype};
  tensor.storage = host_.allocate(
      {.name = std::string(name), .category = category, .elems = elems, .dtype = dtype});
  launch(name, {}, {tensor});
  return tensor;
}

void Aten::launch(std::string_view what, const Tensors& reads, const Tensors& writes, Kernel kernel,
                  const Attributes& sizes) {
  const auto views = [](const Tensors& tensors) {
    std::vector<View> result;
    for (const Tensor& tensor : tensors)
      if (tensor && tensor.storage) result.push_back(tensor.view());
    return result;
  };
  if (skips()) return;
  Compute compute{kernel, sizes};
  if (kernel == Kernel::Elementwise && host_.plan().profile == Profile::TorchCompile)
    compute.attributes.set(Attribute::Fused, 1);
  host_.issue(name_of(what), Stream::Compute, std::move(compute), views(reads), views(writes));
}

SavedTensor Aten::save(const Tensor& tensor, bool needed) {
  if (!needed || !tensor) return {};
  if (again_ != nullptr) {
    if (!again_->complete() && !tensor.kept) again_->add_again(tensor);
    return {};
  }
  if (checkpoint_ && !tensor.kept) return {checkpoint_, checkpoint_->add()};
  return SavedTensor(tensor);
}

void Aten::record(std::string_view what, Tensor& result, const Tensors& inputs, Backward backward) {
  result.node = nullptr;
  result.requires_grad = std::ranges::any_of(inputs, &Tensor::requires_grad);
  if (!result.requires_grad || again_ != nullptr) return;
  // Backward names its launches as forward did.
  auto named = [this, module = module_, backward = std::move(backward)](Tensors gradients) {
    module_ = module;
    return backward(std::move(gradients));
  };
  result.node = &graph_.add(name_of(what), inputs, 1, std::move(named));
  result.output = 0;
}

Tensor Aten::keep_result(const Tensor& result) {
  if (!keeps_results_) return result;
  if (again_ != nullptr) return again_->take_result();
  if (checkpoint_) checkpoint_->keep_result(result);
  return result;
}

Tensor Aten::to(const Tensor& x, Dtype dtype) {
  return to(x, dtype,
            [this, elems = x.elems, from = x.dtype] { return make("to.grad", elems, from); });
}

Tensor Aten::to(const Tensor& x, Dtype dtype, const std::function<Tensor()>& make_gradient) {
  if (x.dtype == dtype) return x;
  Tensor result = make("to", x.elems, dtype);
  launch("to", {x}, {result});
  record("to", result, {x}, [this, make_gradient](const Tensors& g) -> Tensors {
    Tensor back = make_gradient();
    launch("to.backward", g, {back});
    return {back};
  });
  return result;
}

Tensor Aten::pointwise(const Tensor& x, const Pointwise& function) {
  using Saves = Pointwise::Saves;
  const SavedTensor input = save(x, function.saves == Saves::Input && x.requires_grad);
  Tensor result = like(function.name, x);
  launch(function.name, {x}, {result});
  const SavedTensor output = save(result, function.saves == Saves::Output && x.requires_grad);
  const auto backward = [this, function, input, output](const Tensors& g) -> Tensors {
    const Tensor saved = (function.saves == Saves::Input ? input : output).unpack();
    const Tensors temporaries = [&] {
      Tensors made;
      for (int i = 0; i < function.temporaries; ++i)
        made.push_back(like(fmt::format("{}.temporary", function.name), g[0]));
      return made;
    }();
    Tensor gradient = like(fmt::format("{}.grad", function.name), g[0]);
    Tensors written = temporaries;
    written.push_back(gradient);
    launch(fmt::format("{}.backward", function.name), {g[0], saved}, written);
    return {gradient};
  };
  record(function.name, result, {x}, backward);
  return result;
}

Tensor Aten::add(const Tensor& x, const Tensor& y) {
  Tensor result = make("add", x.elems, wider(x, y));
  launch("add", {x, y}, {result}, Kernel::Add);
  record("add", result, {x, y},
         [this, x_elems = x.elems, y_elems = y.elems, sums = y.requires_grad](const Tensors& g) {
           if (x_elems == y_elems || !sums) return Tensors{g[0], g[0]};
           Tensor summed = make("add.sum", y_elems, g[0].dtype);
           launch("add.backward", g, {summed});
           return Tensors{g[0], summed};
         });
  return result;
}

Tensor Aten::mul(const Tensor& x, const Tensor& y) {
  const SavedTensor saved_y = save(y, x.requires_grad);
  const SavedTensor saved_x = save(x, y.requires_grad);
  Tensor result = make("mul", std::max(x.elems, y.elems), wider(x, y));
  launch("mul", {x, y}, {result});
  // The gradient of one factor: that of the product times the other, summed where it was spread.
  const auto factor = [this](const Tensor& g, const Tensor& other, std::int64_t elems) {
    Tensor product = like("mul.grad", g);
    launch("mul.backward", {g, other}, {product});
    if (elems == product.elems) return product;
    Tensor summed = make("mul.grad_sum", elems, g.dtype);
    launch("mul.backward_sum", {product}, {summed});
    return summed;
  };
  const auto backward = [=, wants_x = x.requires_grad, wants_y = y.requires_grad, x_elems = x.elems,
                         y_elems = y.elems](const Tensors& g) {
    const Tensor other_y = saved_y.unpack();
    const Tensor other_x = saved_x.unpack();
    Tensors gradients(2);
    if (wants_y) gradients[1] = factor(g[0], other_x, y_elems);
    if (wants_x) gradients[0] = factor(g[0], other_y, x_elems);
    return gradients;
  };
  record("mul", result, {x, y}, backward);
  return result;
}

Tensor Aten::mean(const Tensor& x, std::int64_t rows) {
  Tensor result = make("mean", rows, x.dtype);
  launch("mean", {x}, {result});
  record("mean", result, {x}, [this, elems = x.elems](const Tensors& g) -> Tensors {
    Tensor gradient = make("mean.grad", elems, g[0].dtype);
    launch("mean.backward", g, {gradient});
    return {gradient};
  });
  return result;
}

Tensor Aten::slice(const Tensor& x, std::int64_t elems) {
  Tensor result = narrow(x, 0, elems);
  record("slice", result, {x}, [this, whole = x.elems](const Tensors& g) -> Tensors {
    Tensor gradient = make("slice.grad", whole, g[0].dtype);
    launch("slice.backward", g, {gradient});
    return {gradient};
  });
  return result;
}

Tensor Aten::cat(const Tensors& parts) {
  const auto elems =
      std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                      [](std::int64_t sum, const Tensor& part) { return sum + part.elems; });
  Tensor result = make("cat", elems, parts.front().dtype);
  launch("cat", parts, {result});
  std::vector<std::int64_t> sizes;
  for (const Tensor& part : parts)
    sizes.push_back(part.elems);
  record("cat", result, parts, [sizes](const Tensors& g) {
    Tensors gradients;
    std::int64_t at = 0;
    for (const std::int64_t size : sizes) {
      gradients.push_back(narrow(g[0], at, size));
      at += size;
    }
    return gradients;
  });
  return result;
}

Tensors Aten::split(const Tensor& x, const std::vector<std::int64_t>& elems) {
  return split_leaf(x, elems, [this, whole = x.elems, dtype = x.dtype] {
    return make("split.grad", whole, dtype);
  });
}

Tensors Aten::split_leaf(const Tensor& x, const std::vector<std::int64_t>& elems,
                         std::function<Tensor()> make_gradient) {
  Tensors parts;
  std::int64_t at = 0;
  for (const std::int64_t size : elems) {
    parts.push_back(narrow(x, at, size));
    at += size;
  }
  if (!x.requires_grad || again_ != nullptr) return parts;
  const auto backward = [this, module = module_,
                         make_gradient = std::move(make_gradient)](const Tensors& g) -> Tensors {
    module_ = module;
    Tensor gradient = make_gradient();
    launch("split.backward", g, {gradient});
    return {gradient};
  };
  Node& node = graph_.add(name_of("split"), {x}, parts.size(), backward);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].node = &node;
    parts[i].output = static_cast<int>(i);
  }
  return parts;
}

Tensor Aten::gradient_of(const Tensor& parameter, std::string_view what) {
  Tensor gradient{.storage = nullptr, .elems = parameter.elems, .dtype = parameter.dtype};
  gradient.storage = host_.allocate({.name = name_of(what),
                                     .category = settings_.gradients,
                                     .elems = parameter.elems,
                                     .dtype = parameter.dtype});
  return gradient;
}

Tensor Aten::operand(const Tensor& x) {
  return settings_.autocast && x ? to(x, *settings_.autocast) : x;
}

/// Autocast casts a leaf that trains once, and keeps the copy to its end.
Tensor Aten::weight_operand(const Tensor& weight) {
  if (!weight.requires_grad) return operand(weight);
  if (!settings_.autocast || weight.dtype == *settings_.autocast) return weight;
  const auto [cast, added] = casts_.try_emplace(weight.storage.get());
  if (added)
    cast->second = to(weight, *settings_.autocast,
                      [this, weight] { return gradient_of(weight, "weight.grad"); });
  return cast->second;
}

Tensor Aten::linear(const Tensor& given, const Tensor& given_weight, const Tensor& given_bias,
                    const Attributes& sizes) {
  const Tensor x = operand(given);
  const Tensor weight = weight_operand(given_weight);
  const Tensor bias = weight_operand(given_bias);
  const SavedTensor saved_x = save(x, weight.requires_grad);
  const SavedTensor saved_weight = save(weight, x.requires_grad);
  const std::int64_t rows = x.elems / sizes.integer(Attribute::InFeatures);
  Tensor result = make("mm", rows * sizes.integer(Attribute::OutFeatures), x.dtype);
  launch("mm", {x, weight, bias}, {result}, Kernel::Linear, sizes);
  // What backward knows of the copies that autocast makes must not keep them.
  const auto shape = [](const Tensor& tensor) {
    Tensor copy = tensor;
    copy.storage = nullptr;
    return copy;
  };
  const auto backward = [=, this, weight = shape(weight), bias = shape(bias), like_x = x.elems,
                         wants_x = x.requires_grad](const Tensors& g) {
    const Tensor input = saved_x.unpack();
    const Tensor by = saved_weight.unpack();
    Tensors gradients(3);
    if (bias.requires_grad) {
      gradients[0] = gradient_of(bias, "bias.grad");
      launch("mm.backward_bias", g, {gradients[0]}, Kernel::LinearBackwardBias, sizes);
    }
    if (weight.requires_grad) {
      gradients[1] = gradient_of(weight, "weight.grad");
      launch("mm.backward_weight", {g[0], input}, {gradients[1]}, Kernel::LinearBackwardWeight,
             sizes);
    }
    if (wants_x) {
      gradients[2] = make("mm.grad", like_x, g[0].dtype);
      launch("mm.backward_input", {g[0], by}, {gradients[2]}, Kernel::LinearBackwardInput, sizes);
    }
    return gradients;
  };
  // addmm's first operand is what it adds: its gradient arrives first.
  record("mm", result, {bias, weight, x}, backward);
  return result;
}

Tensor Aten::layer_norm(const Tensor& given, const Tensor& weight, const Tensor& bias,
                        std::int64_t rows) {
  const Tensor x = settings_.autocast ? to(given, Dtype::Float32) : given;  // of its float32 list
  const Dtype statistics = settings_.cpu ? x.dtype : Dtype::Float32;
  const bool needed = x.requires_grad || weight.requires_grad || bias.requires_grad;
  const SavedTensor saved_x = save(x, needed);
  const SavedTensor saved_weight = save(weight, needed);
  Tensor result = like("layer_norm", x);
  const Tensor mean = make("layer_norm.mean", rows, statistics);
  const Tensor rstd = make("layer_norm.rstd", rows, statistics);
  launch("layer_norm", {x, weight, bias}, {result, mean, rstd});
  const SavedTensor saved_mean = save(mean, needed);
  const SavedTensor saved_rstd = save(rstd, needed);
  const auto backward = [=, this, wants_x = x.requires_grad](const Tensors& g) {
    const Tensor input = saved_x.unpack();
    const Tensor scale = saved_weight.unpack();
    const Tensors row_statistics{saved_mean.unpack(), saved_rstd.unpack()};
    Tensors gradients(3);
    if (wants_x) gradients[0] = like("layer_norm.grad", g[0]);
    if (weight.requires_grad) gradients[1] = gradient_of(weight, "weight.grad");
    if (bias.requires_grad) gradients[2] = gradient_of(bias, "bias.grad");
    launch("layer_norm.backward", {g[0], input, scale, row_statistics[0], row_statistics[1]},
           gradients);
    return gradients;
  };
  record("layer_norm", result, {x, weight, bias}, backward);
  return result;
}

Tensor Aten::embedding(const Tensor& indices, const Tensor& weight, std::int64_t elems) {
  const SavedTensor saved = save(indices, weight.requires_grad);
  Tensor result = make("embedding", elems, weight.dtype);
  launch("embedding", {indices, weight}, {result}, Kernel::Embedding);
  record("embedding", result, {weight}, [=, this](const Tensors& g) -> Tensors {
    const Tensor rows = saved.unpack();
    Tensor gradient = gradient_of(weight, "weight.grad");
    launch("embedding.backward", {g[0], rows}, {gradient}, Kernel::EmbeddingBackward);
    return {gradient};
  });
  return result;
}

Tensor Aten::wide_operand(const Tensor& x) {
  return settings_.autocast && !settings_.cpu ? to(x, Dtype::Float32) : x;
}

Tensor Aten::pad(const Tensor& x, std::int64_t elems) {
  Tensor result = make("pad", elems, x.dtype);
  launch("pad", {x}, {result});
  record("pad", result, {x}, [this, back = x.elems](const Tensors& g) -> Tensors {
    Tensor gradient = make("pad.grad", back, g[0].dtype);
    launch("pad.backward", g, {gradient});
    return {gradient};
  });
  return result;
}

Tensor Aten::matmul(const Tensor& left, const Tensor& right, std::int64_t elems) {
  return bmm(operand(left), operand(right), elems);
}

Tensor Aten::bmm(const Tensor& x, const Tensor& y, std::int64_t elems) {
  const SavedTensor saved_x = save(x, y.requires_grad);
  const SavedTensor saved_y = save(y, x.requires_grad);
  Tensor result = make("bmm", elems, x.dtype);
  launch("bmm", {x, y}, {result});
  const auto backward = [=, this, x_elems = x.elems, y_elems = y.elems, wants_x = x.requires_grad,
                         wants_y = y.requires_grad](const Tensors& g) {
    const Tensor by_x = saved_x.unpack();
    const Tensor by_y = saved_y.unpack();
    Tensors gradients(2);
    if (wants_x) {
      gradients[0] = make("bmm.grad_x", x_elems, g[0].dtype);
      launch("bmm.backward_x", {g[0], by_y}, {gradients[0]});
    }
    if (wants_y) {
      gradients[1] = make("bmm.grad_y", y_elems, g[0].dtype);
      launch("bmm.backward_y", {g[0], by_x}, {gradients[1]});
    }
    return gradients;
  };
  record("bmm", result, {x, y}, backward);
  return result;
}

Tensor Aten::softmax(const Tensor& x) {
  return pointwise(x, {.name = "softmax", .saves = Pointwise::Saves::Output});
}

Tensor Aten::dropout(const Tensor& x) {
  Tensor result = like("dropout", x);
  const Tensor mask = make("dropout.mask", x.elems, Dtype::UInt8);
  launch("dropout", {x}, {result, mask});
  const SavedTensor saved = save(mask, x.requires_grad);
  record("dropout", result, {x}, [this, saved](const Tensors& g) -> Tensors {
    const Tensor kept = saved.unpack();
    Tensor gradient = like("dropout.grad", g[0]);
    launch("dropout.backward", {g[0], kept}, {gradient});
    return {gradient};
  });
  return result;
}

Tensor Aten::repeat(const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  Tensor result = make("repeat", x.elems * times, x.dtype);
  launch("repeat", {x}, {result});
  record("repeat", result, {x}, [this, elems = x.elems](const Tensors& g) -> Tensors {
    Tensor gradient = make("repeat.grad", elems, g[0].dtype);
    launch("repeat.backward", g, {gradient});
    return {gradient};
  });
  return result;
}

Tensor Aten::log_softmax(const Tensor& x) {
  return pointwise(x, {.name = "log_softmax", .saves = Pointwise::Saves::Output});
}

Tensor Aten::nll_loss(const Tensor& log_probabilities, const Tensor& targets) {
  const SavedTensor saved = save(log_probabilities);
  const SavedTensor saved_targets = save(targets);
  Tensor result = make("nll_loss", 1, log_probabilities.dtype);
  const Tensor weight = make("nll_loss.total_weight", 1, log_probabilities.dtype);
  launch("nll_loss", {log_probabilities, targets}, {result, weight});
  const SavedTensor saved_weight = save(weight);
  record("nll_loss", result, {log_probabilities}, [=, this](const Tensors& g) -> Tensors {
    const Tensor input = saved.unpack();
    const Tensor wanted = saved_targets.unpack();
    const Tensor total = saved_weight.unpack();
    Tensor gradient = like("nll_loss.grad", input);
    launch("nll_loss.backward", {g[0], wanted, total}, {gradient});
    return {gradient};
  });
  return result;
}

Tensors Aten::identity(const std::string& name, const Tensors& tensors,
                       std::function<void()> done) {
  Node& node =
      graph_.add(name, tensors, tensors.size(), [done = std::move(done)](Tensors gradients) {
        done();
        return gradients;
      });
  Tensors results = tensors;
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].node = &node;
    results[i].output = static_cast<int>(i);
  }
  return results;
}

}  // namespace shardplan::torch
