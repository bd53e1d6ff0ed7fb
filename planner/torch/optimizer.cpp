#include "planner/torch/optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/passes/optimizer_step.h"

namespace shardplan::torch {

/// Tensors that an update keeps per parameter.
int Optimizer::moments() const {
  if (settings_.name != OptimizerJob::Name::Sgd) return 2;
  return settings_.momentum != 0 ? 1 : 0;
}

StoragePtr Optimizer::allocate(const Trained& trained, std::string_view what, Category category) {
  const Buffer& parameter = host_.plan().buffers[trained.parameter.buffer];
  return host_.allocate({.name = fmt::format("{}.{}", trained.name, what),
                         .category = category,
                         .elems = *std::ranges::max_element(trained.class_elems),
                         .dtype = parameter.dtype,
                         .class_elems = trained.class_elems,
                         .space = space_of(trained)});
}

/// What is in the host's memory, the host updates; torch.zeros_like() does not pin.
Space Optimizer::space_of(const Trained& trained) const {
  const Space space = host_.plan().buffers[trained.parameter.buffer].space;
  return space == Space::Device ? Space::Device : Space::Host;
}

Stream Optimizer::stream_of(const Trained& trained) const {
  return space_of(trained) == Space::Device ? Stream::Compute : Stream::Host;
}

void Optimizer::make_state(const Trained& one) {
  host_.enter_unit(one.unit);
  State& state = states_[one.name];
  for (int moment = 0; moment < moments(); ++moment)
    state.tensors.push_back(
        allocate(one, moment == 0 ? "exp_avg" : "exp_avg_sq", Category::OptimizerState));
  if (settings_.name != OptimizerJob::Name::Sgd)
    state.steps = host_.allocate(
        {.name = one.name + ".step",
         .category = Category::OptimizerState,
         .elems = one.class_tensors.empty() ? 1 : *std::ranges::max_element(one.class_tensors),
         .class_elems = one.class_tensors,
         .space = space_of(one)});
  for (const StoragePtr& tensor : state.tensors)
    if (tensor)
      host_.issue(fmt::format("{}.zero", one.name), stream_of(one), Fill{0}, {},
                  {host_.whole(tensor)});
  host_.enter_unit(-1);
}

void Optimizer::update(const Trained& trained) {
  const std::int64_t elems = *std::ranges::max_element(trained.class_elems);
  if (elems == 0) return;
  host_.enter_unit(trained.unit);
  const View parameter{trained.parameter.buffer, trained.parameter.at, elems};
  std::vector<View> reads{{trained.gradient.buffer, trained.gradient.at, elems}, parameter};
  std::vector<View> writes{parameter};
  for (const StoragePtr& tensor : states_.at(trained.name).tensors) {
    reads.push_back(host_.whole(tensor));
    writes.push_back(host_.whole(tensor));
  }
  host_.issue(fmt::format("{}.update", trained.name), stream_of(trained),
              optimizer_kernel(settings_, settings_.weight_decay), std::move(reads),
              std::move(writes));
}

/// A norm of every gradient, which ranks that hold parts of it sum; then all are scaled in place.
void Optimizer::clip(const std::vector<Trained>& trained, Norm norm) {
  if (!host_.plan().job.training.clip_grad_norm) return;
  std::vector<View> gradients;
  for (const Trained& one : trained)
    gradients.push_back(one.gradient);
  const auto count = static_cast<std::int64_t>(gradients.size());
  const StoragePtr norms = host_.allocate({.name = "clip.norms", .elems = count});
  const StoragePtr coefficient = host_.allocate({.name = "clip.coefficient", .elems = 1});
  host_.issue("clip.norm", Stream::Compute, Compute{Kernel::Elementwise, {}}, gradients,
              {host_.whole(norms)});
  View summed = host_.whole(norms);
  if (norm == Norm::OfRanks) {
    if (!total_norm_) total_norm_ = host_.allocate({.name = "clip.total_norm", .elems = 1});
    summed = host_.whole(total_norm_);
    host_.issue("clip.total_norm", Stream::Compute, Compute{Kernel::Elementwise, {}},
                {host_.whole(norms)}, {summed});
  }
  if (host_.plan().mesh.shard > 1)
    host_.issue("clip.all_reduce", Stream::AllReduce, AllReduce{Group::Shard, 1, 1, {}}, {summed},
                {summed});
  host_.issue("clip.coefficient", Stream::Compute, Compute{Kernel::Elementwise, {}}, {summed},
              {host_.whole(coefficient)});
  std::vector<View> reads = gradients;
  reads.push_back(host_.whole(coefficient));
  host_.issue("clip.scale", Stream::Compute, Compute{Kernel::Elementwise, {}}, reads, gradients);
}

/// Temporaries of torch/optim/adam.py beside the state: for-loop makes the root of the second
/// moment and its quotient for one parameter at a time, foreach the roots for all, fused none.
void Optimizer::step(const std::vector<Trained>& trained) {
  for (const Trained& one : trained)
    if (!states_.contains(one.name)) make_state(one);
  using Implementation = OptimizerJob::Implementation;
  const bool adam = settings_.name != OptimizerJob::Name::Sgd;
  std::vector<StoragePtr> roots;
  if (adam && settings_.implementation == Implementation::Foreach)
    for (const Trained& one : trained)
      roots.push_back(allocate(one, "exp_avg_sq_sqrt", Category::Temporaries));
  for (std::size_t i = 0; i < trained.size(); ++i) {
    StoragePtr root;
    StoragePtr denominator;
    if (adam && settings_.implementation == Implementation::ForLoop) {
      root = allocate(trained[i], "exp_avg_sq_sqrt", Category::Temporaries);
      denominator = allocate(trained[i], "denominator", Category::Temporaries);
    }
    update(trained[i]);
  }
  host_.enter_unit(-1);
}

}  // namespace shardplan::torch
