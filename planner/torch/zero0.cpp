#include <fmt/format.h>

#include <utility>

#include "planner/torch/deepspeed.h"
#include "planner/torch/optimizer.h"

namespace shardplan::torch {
namespace {

/// DeepSpeedEngine without ZeRO. In float32 the optimizer updates the parameters themselves;
/// otherwise FP16_UnfusedOptimizer (deepspeed/runtime/fp16/unfused_optimizer.py) has it update
/// float32 copies, whose state is made at once.
class Zero0 : public DeepSpeedEngine {
 public:
  explicit Zero0(const Process& process) : DeepSpeedEngine(process) {}

  void init(Optimizer& optimizer) override;
  void end_backward() override;
  std::vector<Trained> trained() const override;
  void step(Optimizer& optimizer) override;

 private:
  bool has_masters() const { return dtype_ != Dtype::Float32; }
  void step_masters(Optimizer& optimizer);
  void reduce(const std::vector<int>& bucket, std::int64_t elems, std::vector<int> final);

  std::vector<StoragePtr> masters_;    // by place in trained_
  std::vector<StoragePtr> gradients_;  // of masters, in the step
};

void Zero0::init(Optimizer& optimizer) {
  make_params();
  for (Param& param : params_)
    make_whole(param);
  if (!has_masters()) return;
  for (const int index : trained_) {
    masters_.push_back(host_.resident({.name = params_[index].name + ".fp32",
                                       .category = Category::OptimizerState,
                                       .elems = params_[index].elems()}));
    launch(params_[index].name + ".fp32.to", {params_[index].tensor.view()},
           {whole(masters_.back())});
  }
  // initialize_optimizer_states: a step with zeros makes the state.
  for (const int index : trained_) {
    Param& param = params_[index];
    param.gradient = param.tensor;
    param.gradient.storage =
        allocate(param.name + ".grad", Category::Gradients, param.elems(), dtype_);
  }
  step_masters(optimizer);
  drop_gradients();
}

/// buffered_allreduce_fallback: gradients in the model's order, in copies that are closed once they
/// hold more than MEMORY_OPT_ALLREDUCE_SIZE elements.
void Zero0::end_backward() {
  constexpr std::int64_t kMost = 500'000'000;
  if (sync_ == Sync::No) return;
  std::vector<int> bucket;
  std::int64_t elems = 0;
  for (const int index : trained_) {
    bucket.push_back(index);
    elems += params_[index].elems();
    if (elems <= kMost || index == trained_.back()) continue;
    reduce(bucket, elems, {});
    bucket.clear();
    elems = 0;
  }
  reduce(bucket, elems, {0});
}

void Zero0::reduce(const std::vector<int>& bucket, std::int64_t elems, std::vector<int> final) {
  std::vector<View> gradients;
  for (const int index : bucket)
    gradients.push_back(params_[index].gradient.view());
  const StoragePtr flat =
      allocate("all_reduce.flat", Category::CommunicationBuffers, elems, dtype_);
  launch("all_reduce.flatten", gradients, {whole(flat)});
  all_reduce_in_comm_dtype("all_reduce.gradients", whole(flat), std::move(final), Stream::Compute);
  launch("all_reduce.unflatten", {whole(flat)}, gradients);
}

std::vector<Trained> Zero0::trained() const {
  std::vector<Trained> all;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const Param& param = params_[trained_[i]];
    all.push_back({param.name, has_masters() ? whole(masters_[i]) : param.tensor.view(),
                   has_masters() ? whole(gradients_[i]) : param.gradient.view(),
                   process_.alike(param.elems()), 0});
  }
  return all;
}

void Zero0::step(Optimizer& optimizer) {
  std::vector<View> gradients;
  std::int64_t largest = 0;
  for (const int index : trained_) {
    gradients.push_back(params_[index].gradient.view());
    largest = std::max(largest, params_[index].elems());
  }
  // Gradients are whole on every rank: of their norm only clip_grad_norm_ takes a mean.
  const StoragePtr norm = allocate("grad_norm", Category::Temporaries, 1, Dtype::Float32);
  if (has_masters()) allocate("grad_norm.copy", Category::Temporaries, largest, Dtype::Float32);
  launch("grad_norm", gradients, {whole(norm)});
  if (!has_masters() && process_.job().training.clip_grad_norm)
    all_reduce("all_reduce.grad_norm", whole(norm));
  if (has_masters()) return step_masters(optimizer);
  for (const Trained& one : trained())
    clip(one.gradient);
  optimizer.step(trained());
}

/// Gradients in float32 for all copies at once.
void Zero0::step_masters(Optimizer& optimizer) {
  for (const int index : trained_) {
    const Param& param = params_[index];
    gradients_.push_back(
        allocate(param.name + ".fp32.grad", Category::Temporaries, param.elems(), Dtype::Float32));
    launch(param.name + ".fp32.grad.to", {param.gradient.view()}, {whole(gradients_.back())});
    clip(whole(gradients_.back()));
  }
  optimizer.step(trained());
  gradients_.clear();
  for (std::size_t i = 0; i < trained_.size(); ++i)
    launch(params_[trained_[i]].name + ".from", {whole(masters_[i])},
           {params_[trained_[i]].tensor.view()});
}

/// BF16_Optimizer (deepspeed/runtime/bf16_optimizer.py): stage 1 with float32 gradients of the
/// whole model on every rank, into which each micro-step's are added.
class Bf16Optimizer : public DeepSpeedEngine {
 public:
  explicit Bf16Optimizer(const Process& process)
      : DeepSpeedEngine(process), layout_(process, false, 1) {}

  void init(Optimizer& optimizer) override;
  void end_backward() override;
  std::vector<Trained> trained() const override;
  void step(Optimizer& optimizer) override;

 private:
  const FlatPartitions layout_;
  Flat flat_;
  StoragePtr gradients_;  // float32, of all ranks' parts
};

void Bf16Optimizer::init(Optimizer&) {
  make_params();
  make_frozen_whole();
  flat_ = make_flat(layout_);
  gradients_ = host_.resident(
      {.name = "fp32_gradients", .category = Category::Gradients, .elems = layout_.elems()});
  host_.issue("fp32_gradients.zero", Stream::Compute, Fill{0}, {}, {whole(gradients_)});
}

/// update_hp_grads, then the whole buffer in one reduction. Gradients in the model's dtype stay
/// until zero_grad().
void Bf16Optimizer::end_backward() {
  for (const int index : trained_) {
    const Param& param = params_[index];
    const View sum{gradients_->buffer(), layout_.at(index), param.elems()};
    const StoragePtr wide =
        allocate(param.name + ".grad.fp32", Category::Temporaries, param.elems(), Dtype::Float32);
    launch(param.name + ".grad.to", {param.gradient.view()}, {whole(wide)});
    add(param.name + ".grad.accumulate", sum, whole(wide));
  }
  if (sync_ == Sync::Yes)
    all_reduce_in_comm_dtype("all_reduce.gradients", whole(gradients_), {0}, Stream::Compute);
}

std::vector<Trained> Bf16Optimizer::trained() const {
  return {{"fp32_partition",
           whole(flat_.master),
           {gradients_->buffer(), 0, layout_.partition()},
           process_.alike(layout_.partition()),
           0}};
}

void Bf16Optimizer::step(Optimizer& optimizer) {
  const StoragePtr norm = allocate("grad_norm", Category::Temporaries, 1, Dtype::Float32);
  launch("grad_norm", {whole(gradients_)}, {whole(norm)});
  clip(whole(gradients_));
  optimizer.step(trained());
  update_flat(flat_);
  host_.issue("fp32_gradients.zero", Stream::Compute, Fill{0}, {}, {whole(gradients_)});
}

}  // namespace

std::unique_ptr<Engine> make_zero0(const Process& process) {
  return std::make_unique<Zero0>(process);
}

std::unique_ptr<Engine> make_bf16_optimizer(const Process& process) {
  return std::make_unique<Bf16Optimizer>(process);
}

}  // namespace shardplan::torch
