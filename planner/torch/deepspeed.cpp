#include "planner/torch/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/passes/whole_parameters.h"

namespace shardplan::torch {
namespace {

/// communication_data_type: the model's, unless the job names another.
Dtype communication_dtype(const Job& job) {
  return job.strategy.mixed_precision ? reduce_dtype(job) : compute_dtype(job);
}

}  // namespace

Dtype grad_accum_dtype(const Job& job) {
  const auto& options = job.strategy.deepspeed;
  return options && options->grad_accum_dtype ? *options->grad_accum_dtype : compute_dtype(job);
}

DeepSpeedEngine::DeepSpeedEngine(const Process& process)
    : process_(process),
      host_(process.host),
      options_(process.job().strategy.deepspeed.value_or(DeepSpeedOptions{})),
      world_(process.plan().world_size()),
      dtype_(compute_dtype(process.job())),
      comm_dtype_(communication_dtype(process.job())) {}

void DeepSpeedEngine::make_params() {
  params_.resize(process_.model.parameters.size());
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Parameter& parameter = process_.model.parameters[i];
    Param& param = params_[i];
    param.name = parameter.name;
    param.tensor = {.storage = nullptr,
                    .elems = parameter.elements(),
                    .dtype = dtype_,
                    .requires_grad = parameter.trains()};
    if (!parameter.trains()) continue;
    trained_.push_back(static_cast<int>(i));
    // As PyTorch's AccumulateGrad: the first gradient is taken as it is, others are added to it.
    param.tensor.node =
        &process_.autograd.add_leaf(param.name + ".accumulate", -1, [this, i](Tensor gradient) {
          Param& leaf = params_[i];
          if (leaf.gradient)
            add(leaf.name + ".grad.add", leaf.gradient.view(), gradient.view());
          else
            leaf.gradient = std::move(gradient);
          gradient = {};
          on_gradient(leaf);
        });
  }
}

void DeepSpeedEngine::make_whole(Param& param) {
  param.tensor.storage = host_.resident({.name = param.name,
                                         .category = Category::Parameters,
                                         .elems = param.elems(),
                                         .dtype = dtype_});
  broadcast_model({param.tensor.view()});
}

void DeepSpeedEngine::make_frozen_whole() {
  for (Param& param : params_)
    if (!param.tensor.requires_grad) make_whole(param);
}

/// While they are flattened, the parameters exist twice.
DeepSpeedEngine::Flat DeepSpeedEngine::make_flat(const FlatPartitions& layout) {
  const Flat flat{.parameters = host_.resident({.name = "flat_parameters",
                                                .category = Category::Parameters,
                                                .elems = layout.elems(),
                                                .dtype = dtype_}),
                  .master = resident("fp32_partition", Category::OptimizerState, layout.partition(),
                                     Dtype::Float32, optimizer_space())};
  const StoragePtr before =
      allocate("parameters.before_flattening", Category::Temporaries, layout.valid(), dtype_);
  for (const int index : layout.order()) {
    Tensor& tensor = params_[index].tensor;
    tensor.storage = flat.parameters;
    tensor.at = layout.at(index);
    broadcast_model({{before->buffer(), tensor.at, tensor.elems}});
  }
  launch("flatten", {whole(before)}, {{flat.parameters->buffer(), 0, layout.valid()}});
  launch("fp32_partition.to", {{flat.parameters->buffer(), 0, layout.partition()}},
         {whole(flat.master)});
  return flat;
}

void DeepSpeedEngine::update_flat(const Flat& flat) {
  const View master = whole(flat.master);
  launch("flat_parameters.from", {master}, {{flat.parameters->buffer(), 0, master.elems}});
  if (world_ == 1) return;
  host_.issue("all_gather.flat_parameters", Stream::Compute, AllGather{Group::World},
              {{flat.parameters->buffer(), 0, master.elems}}, {whole(flat.parameters)});
}

void DeepSpeedEngine::clip(const View& gradient) {
  const bool on_host = host_.plan().buffers[gradient.buffer].space != Space::Device;
  if (process_.job().training.clip_grad_norm)
    launch("gradient.clip", {gradient}, {gradient}, on_host ? Stream::Host : Stream::Compute);
}

Space DeepSpeedEngine::optimizer_space() const {
  if (options().offload_optimizer.device == OffloadDevice::None) return Space::Device;
  return options().offload_optimizer.pin_memory ? Space::Pinned : Space::Host;
}

void DeepSpeedEngine::reduce_host_norm() {
  const StoragePtr norm = allocate("grad_norm", Category::Temporaries, 1, Dtype::Float32);
  launch("grad_norm.to", {}, {whole(norm)});
  all_reduce("all_reduce.grad_norm", whole(norm));
}

void DeepSpeedEngine::broadcast_model(const std::vector<View>& parameters) {
  for (const View& view : parameters)
    host_.issue("broadcast.parameter", Stream::Compute, Broadcast{Group::World, 0}, {view}, {view});
}

void DeepSpeedEngine::drop_gradients() {
  for (Param& param : params_)
    param.gradient = {};
}

void DeepSpeedEngine::add(const std::string& name, const View& sum, const View& term) {
  host_.issue(name, Stream::Compute, Compute{Kernel::Add, {}}, {sum, term}, {sum});
}

void DeepSpeedEngine::all_reduce(const std::string& name, const View& view, std::vector<int> final,
                                 Stream stream) {
  host_.issue(name, stream, AllReduce{Group::World, 1, 1, std::move(final)}, {view}, {view});
}

void DeepSpeedEngine::all_reduce_in_comm_dtype(const std::string& name, const View& view,
                                               std::vector<int> final, Stream stream) {
  if (host_.plan().buffers[view.buffer].dtype == comm_dtype_)
    return all_reduce(name, view, std::move(final), stream);
  const StoragePtr cast =
      allocate(name + ".cast", Category::CommunicationBuffers, view.elems, comm_dtype_, stream);
  launch(name + ".to", {view}, {whole(cast)}, stream);
  all_reduce(name, whole(cast), std::move(final), stream);
  launch(name + ".from", {whole(cast)}, {view}, stream);
}

void DeepSpeedEngine::compute_norm(const std::vector<View>& gradients,
                                   std::vector<std::int64_t> largest, Dtype dtype) {
  const StoragePtr norm = allocate("grad_norm", Category::Temporaries, 1, dtype);
  host_.allocate({.name = "grad_norm.copy",
                  .category = Category::Temporaries,
                  .elems = *std::ranges::max_element(largest),
                  .dtype = Dtype::Float64,
                  .class_elems = largest});
  launch("grad_norm", gradients, {whole(norm)});
  all_reduce("all_reduce.grad_norm", whole(norm));
}

/// As DeepSpeedEngine picks its optimizer's class (_do_optimizer_sanity_check).
std::unique_ptr<Engine> make_deepspeed(const Process& process) {
  const Job& job = process.job();
  switch (job.strategy.sharding) {
    case Strategy::Zero1:
      if (compute_dtype(job) == Dtype::BFloat16 && grad_accum_dtype(job) == Dtype::Float32)
        return make_bf16_optimizer(process);
      return make_zero12(process);
    case Strategy::Zero2: return make_zero12(process);
    case Strategy::Zero3: return make_zero3(process);
    default: return make_zero0(process);
  }
}

}  // namespace shardplan::torch
