#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "planner/torch/engine.h"

namespace shardplan::torch {
namespace {

/// A bucket of torch/csrc/distributed/c10d/reducer.cpp: gradients that are reduced together.
struct Bucket {
  std::vector<int> parameters;
  std::vector<int> units;  // whose gradients it makes final
  StoragePtr storage;
  std::size_t missing = 0;  // gradients, in this backward
};

struct Param {
  std::string name;
  Tensor tensor;
  Tensor gradient;  // also under gradient_as_bucket_view: then in the bucket
  int bucket = -1;
  std::int64_t at = 0;  // in the bucket
};

/// torch.nn.parallel.DistributedDataParallel; on one rank the plain module.
class Ddp : public Engine {
 public:
  explicit Ddp(const Process& process)
      : process_(process),
        host_(process.host),
        bucket_view_(process.job().strategy.ddp.gradient_as_bucket_view),
        wrapped_(process.plan().world_size() > 1) {}

  void init(Optimizer& optimizer) override;
  bool first_step_differs() const override { return wrapped_; }
  void end_first_step() override;
  Tensor parameter(int index) override { return params_[index].tensor; }
  void begin_micro_step(Sync sync) override;
  void end_backward() override;
  std::vector<Trained> trained() const override;
  void zero_grad() override {
    for (Param& param : params_)
      param.gradient = {};
  }

 private:
  void verify_parameters();
  void broadcast_state();
  void broadcast(const std::string& name, const std::vector<View>& views);
  void exchange(const std::string& name, std::int64_t elems, Dtype dtype);
  void make_bucket(std::vector<int> parameters, std::vector<int> units);
  void make_first_bucket();
  std::vector<View> state() const;
  void accumulate(int index, Tensor gradient);
  void mark_ready(int index);
  void reduce_ready();
  Dtype dtype_of(const View& view) const { return host_.plan().buffers[view.buffer].dtype; }
  View in_bucket(const Param& param) const {
    return {buckets_[param.bucket].storage->buffer(), param.at, param.tensor.elems};
  }

  const Process& process_;
  Host& host_;
  const bool bucket_view_;
  const bool wrapped_;
  Sync sync_ = Sync::Yes;
  bool broadcasts_buffers_ = true;  // the backward before was synchronised
  std::vector<Param> params_;       // by parameter
  std::vector<Bucket> buckets_;
  std::size_t next_bucket_ = 0;  // to reduce
};

void Ddp::init(Optimizer&) {
  const std::size_t count = process_.model.parameters.size();
  params_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = process_.model.parameters[i];
    const int index = static_cast<int>(i);
    const Dtype dtype = stored_dtype(process_.job(), parameter);
    Param& param = params_[i];
    param.name = parameter.name;
    param.tensor.storage = host_.resident({.name = parameter.name,
                                           .category = Category::Parameters,
                                           .elems = parameter.elements(),
                                           .dtype = dtype});
    param.tensor.elems = parameter.elements();
    param.tensor.dtype = dtype;
    param.tensor.requires_grad = parameter.trains();
    param.tensor.node = &process_.autograd.add_leaf(
        param.name + ".accumulate", -1,
        [this, index](Tensor gradient) { accumulate(index, std::move(gradient)); });
  }
  if (!wrapped_) return;
  verify_parameters();
  broadcast_state();
  make_first_bucket();
}

/// A small tensor that all ranks compare or take over from rank 0.
void Ddp::exchange(const std::string& name, std::int64_t elems, Dtype dtype) {
  const StoragePtr storage = host_.allocate(
      {.name = name, .category = Category::CommunicationBuffers, .elems = elems, .dtype = dtype});
  const View view = host_.whole(storage);
  host_.issue("broadcast." + name, Stream::AllReduce, Broadcast{Group::World, 0}, {view}, {view});
}

/// _verify_param_shape_across_processes: how many parameters, and their sizes and strides.
void Ddp::verify_parameters() {
  const std::int64_t world = process_.plan().world_size();
  std::int64_t numbers = 0;
  for (const Parameter& parameter : process_.model.parameters)
    numbers += 2 * static_cast<std::int64_t>(parameter.shape.size());
  const auto count = [&](std::int64_t elems, const char* name) {
    return host_.allocate({.name = name,
                           .category = Category::CommunicationBuffers,
                           .elems = elems,
                           .dtype = Dtype::Int64});
  };
  {
    const StoragePtr own = count(1, "parameter_count");
    const StoragePtr all = count(world, "parameter_counts");
    host_.issue("all_gather.parameter_count", Stream::AllReduce, AllGather{Group::World},
                {host_.whole(own)}, {host_.whole(all)});
  }
  exchange("parameter_shapes", numbers, Dtype::Int64);
}

void Ddp::broadcast(const std::string& name, const std::vector<View>& views) {
  std::int64_t elems = 0;
  for (const View& view : views)
    elems += view.elems;
  const StoragePtr flat = host_.allocate({.name = name,
                                          .category = Category::CommunicationBuffers,
                                          .elems = elems,
                                          .dtype = dtype_of(views.front())});
  const View whole = host_.whole(flat);
  host_.issue(name + ".flatten", Stream::Compute, Compute{Kernel::Elementwise, {}}, views, {whole});
  host_.issue("broadcast." + name, Stream::AllReduce, Broadcast{Group::World, 0}, {whole}, {whole});
  host_.issue(name + ".unflatten", Stream::Compute, Compute{Kernel::Elementwise, {}}, {whole},
              views);
}

/// _sync_module_states: parameters and buffers of rank 0, in buckets of one dtype that close once
/// they hold 250 MiB (broadcast_bucket_size).
void Ddp::broadcast_state() {
  constexpr Bytes kBucketBytes = Bytes{250} << 20;
  std::map<Dtype, std::vector<View>> buckets;
  for (const View& view : state()) {
    std::vector<View>& bucket = buckets[dtype_of(view)];
    bucket.push_back(view);
    Bytes filled = 0;
    for (const View& one : bucket)
      filled += bytes_of(host_.plan(), one);
    if (filled >= kBucketBytes) broadcast("module_states", std::exchange(bucket, {}));
  }
  for (const auto& [dtype, bucket] : buckets)
    if (!bucket.empty()) broadcast("module_states", bucket);
}

std::vector<View> Ddp::state() const {
  std::vector<View> views;
  for (const Param& param : params_)
    views.push_back(param.tensor.view());
  if (process_.buffers.elems > 0) views.push_back(process_.buffers);
  return views;
}

void Ddp::make_bucket(std::vector<int> parameters, std::vector<int> units) {
  Bucket& bucket = buckets_.emplace_back();
  std::int64_t elems = 0;
  for (const int index : parameters) {
    params_[index].bucket = static_cast<int>(buckets_.size()) - 1;
    params_[index].at = elems;
    elems += params_[index].tensor.elems;
  }
  bucket.storage = host_.allocate({.name = fmt::format("bucket.{}", buckets_.size() - 1),
                                   .category = Category::CommunicationBuffers,
                                   .elems = elems,
                                   .dtype = params_[parameters.front()].tensor.dtype});
  bucket.parameters = std::move(parameters);
  bucket.units = std::move(units);
}

/// Before the order of gradients is known, all are in one bucket.
void Ddp::make_first_bucket() {
  std::vector<int> all;
  for (std::size_t i = 0; i < params_.size(); ++i)
    if (params_[i].tensor.requires_grad) all.push_back(static_cast<int>(i));
  std::vector<int> units;
  for (std::size_t unit = 0; unit < process_.groups.size(); ++unit)
    if (params_[process_.groups[unit].parameters.front()].tensor.requires_grad)
      units.push_back(static_cast<int>(unit));
  make_bucket(std::move(all), std::move(units));
}

/// Reducer::rebuild_buckets, which PyTorch runs as the second step begins: buckets in the order in
/// which gradients came, as rank 0 saw it.
void Ddp::end_first_step() {
  if (!wrapped_) return;
  buckets_.clear();
  const auto trained =
      std::ranges::count_if(params_, [](const Param& param) { return param.tensor.requires_grad; });
  std::int64_t buckets = 0;
  for (const ParameterGroup& group : process_.groups)
    if (params_[group.parameters.front()].tensor.requires_grad) ++buckets;
  exchange("bucket_order", trained + 1, Dtype::Int32);
  exchange("bucket_sizes", buckets, Dtype::Int32);
  for (std::size_t unit = 0; unit < process_.groups.size(); ++unit) {
    const auto& parameters = process_.groups[unit].parameters;
    if (params_[parameters.front()].tensor.requires_grad)
      make_bucket(parameters, {static_cast<int>(unit)});
  }
}

void Ddp::begin_micro_step(Sync sync) {
  sync_ = sync;
  if (!wrapped_) return;
  if (broadcasts_buffers_ && process_.buffers.elems > 0)
    broadcast("module_buffers", {process_.buffers});
  broadcasts_buffers_ = sync == Sync::Yes;
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_)
    bucket.missing = bucket.parameters.size();
}

void Ddp::accumulate(int index, Tensor gradient) {
  Param& param = params_[index];
  if (!param.gradient) {
    param.gradient = std::move(gradient);
  } else {
    host_.issue(param.name + ".grad.add", Stream::Compute, Compute{Kernel::Add, {}},
                {param.gradient.view(), gradient.view()}, {param.gradient.view()});
  }
  if (wrapped_ && sync_ == Sync::Yes) mark_ready(index);
}

void Ddp::mark_ready(int index) {
  Param& param = params_[index];
  Bucket& bucket = buckets_[param.bucket];
  if (param.gradient.storage != bucket.storage)
    host_.issue(param.name + ".grad.to_bucket", Stream::Compute, Copy{}, {param.gradient.view()},
                {in_bucket(param)});
  if (bucket_view_) {
    param.gradient.storage = bucket.storage;
    param.gradient.at = param.at;
  }
  --bucket.missing;
  reduce_ready();
}

/// Buckets are reduced in their order, each as soon as it is full.
void Ddp::reduce_ready() {
  const auto world = static_cast<double>(process_.plan().world_size());
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0; ++next_bucket_) {
    const Bucket& bucket = buckets_[next_bucket_];
    host_.enter_unit(bucket.units.size() == 1 ? bucket.units.front() : -1);
    const View view = host_.whole(bucket.storage);
    host_.issue(fmt::format("all_reduce.bucket.{}", next_bucket_), Stream::AllReduce,
                AllReduce{Group::World, 1 / world, 1, bucket.units}, {view}, {view});
  }
}

void Ddp::end_backward() {
  if (!wrapped_ || sync_ == Sync::No || bucket_view_) return;
  for (const Bucket& bucket : buckets_)
    for (const int index : bucket.parameters)
      host_.issue(params_[index].name + ".grad.from_bucket", Stream::Compute, Copy{},
                  {in_bucket(params_[index])}, {params_[index].gradient.view()});
}

std::vector<Trained> Ddp::trained() const {
  std::vector<Trained> all;
  for (const Param& param : params_)
    if (param.tensor.requires_grad)
      all.push_back({param.name, param.tensor.view(), param.gradient.view(),
                     process_.alike(param.tensor.elems), -1});
  return all;
}

}  // namespace

std::unique_ptr<Engine> make_ddp(const Process& process) { return std::make_unique<Ddp>(process); }

}  // namespace shardplan::torch
