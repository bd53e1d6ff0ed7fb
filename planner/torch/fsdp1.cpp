#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include "planner/passes/whole_parameters.h"
#include "planner/torch/engine.h"
#include "planner/torch/optimizer.h"

namespace shardplan::torch {
namespace {

/// FlatParamHandle: the flat parameter of a unit.
struct Handle {
  std::string name;
  int unit = -1;
  std::int64_t elems = 0;         // of the flat parameter, with padding between parameters only
  std::int64_t padded_elems = 0;  // a multiple of the shard group
  std::int64_t shard_elems = 0;
  StoragePtr local_shard;
  StoragePtr low_precision_shard;  // _mp_shard; none without mixed precision
  StoragePtr unsharded;            // _full_param_padded; without sharding one of the above
  Tensor flat;                     // views `unsharded`
  StoragePtr flat_gradient;        // as autograd makes it
  StoragePtr gradient;             // what the optimizer reads: the shard's; none without sharding
  bool prefetched = false;
  bool needs_forward_unshard = false;
  bool needs_backward_unshard = false;
  bool ran_pre_backward = false;
  std::optional<int> forward_index;  // in the order of forward
};

/// torch.distributed.fsdp.FullyShardedDataParallel (torch/distributed/fsdp/_runtime_utils.py and
/// _flat_param.py).
class Fsdp1 : public Engine {
 public:
  explicit Fsdp1(const Process& process)
      : process_(process),
        host_(process.host),
        mesh_(process.plan().mesh),
        param_dtype_(compute_dtype(process.job())),
        orig_dtype_(process.job().model.dtype),
        reduce_dtype_(reduce_dtype(process.job())) {}

  void init(Optimizer& optimizer) override;
  /// The order that forward prefetches in is learnt in the first step; with use_orig_params a
  /// gradient outlives zero_grad().
  bool first_step_differs() const override { return true; }
  void end_first_step() override { knows_order_ = true; }
  Tensor parameter(int index) override { return views_[index]; }
  std::vector<Hooked> hooked() const override { return hooked_units(process_.groups); }
  void begin_micro_step(Sync sync) override;
  Tensors pre_forward(int unit, Tensors inputs) override;
  void post_forward(int unit, const Tensors& outputs) override;
  void end_backward() override;
  std::vector<Trained> trained() const override;
  void step(Optimizer& optimizer) override;
  void zero_grad() override;

 private:
  Handle make_handle(int unit);
  bool shards() const { return mesh_.shard > 1 && sharding() != Strategy::NoShard; }
  Strategy sharding() const { return process_.job().strategy.sharding; }
  bool reshards_after_forward() const {
    return sharding() == Strategy::FullShard || sharding() == Strategy::HybridShard;
  }
  bool frees_in_backward() const { return sync_ == Sync::Yes || reshards_after_forward(); }
  bool is_root(int unit) const { return process_.groups[unit].modules.front().empty(); }
  bool low_precision() const { return param_dtype_ != orig_dtype_; }
  View whole(const StoragePtr& storage) const { return host_.whole(storage); }

  void unshard(Handle& handle);
  void make_views(Handle& handle);
  void reshard(Handle& handle, bool free);
  void prefetch_forward(const Handle& handle);
  void prefetch_backward(const Handle& handle, BackwardPrefetch when);
  void pre_backward(Handle& handle);
  Tensor make_flat_gradient(Handle& handle);
  void accumulate(Handle& handle, Tensor gradient);
  void reshard_behind(const Handle& handle, Tensors& inputs);
  void post_backward_reshard(Handle& handle);
  void post_backward(Handle& handle);
  void reduce_shards(Handle& handle, Tensor gradient);
  void all_reduce(Handle& handle, Tensor gradient);
  void free_gradients();
  StoragePtr cast(const Handle& handle, const Tensor& gradient, Dtype dtype);
  Tensor padded(const Handle& handle, const Tensor& gradient);

  const Process& process_;
  Host& host_;
  const Mesh mesh_;
  const Dtype param_dtype_;
  const Dtype orig_dtype_;
  const Dtype reduce_dtype_;
  Sync sync_ = Sync::Yes;
  bool knows_order_ = false;
  bool drops_gradients_ = false;  // zero_grad() was called, and left them to the next forward
  std::vector<Handle> handles_;   // by unit
  std::vector<Tensor> views_;     // by parameter
  std::vector<int> forward_order_;
  std::deque<InstructionId> frees_;  // the rate limiter's events
};

Handle Fsdp1::make_handle(int unit) {
  const Unit& layout = process_.plan().units[unit];
  Handle handle{
      .name = layout.name,
      .unit = unit,
      // With use_orig_params it is padded to the shard group when it is made.
      .elems = process_.job().strategy.use_orig_params ? layout.padded_elems : layout.elems,
      .padded_elems = layout.padded_elems,
      .shard_elems = layout.shard_elems};
  const auto spec = [&](const char* what, Category category, std::int64_t elems, Dtype dtype,
                        Stream stream) {
    return StorageSpec{.name = fmt::format("{}.{}", handle.name, what),
                       .category = category,
                       .elems = elems,
                       .dtype = dtype,
                       .stream = stream};
  };
  handle.local_shard = host_.resident(
      spec("flat_param", Category::Parameters, handle.shard_elems, orig_dtype_, Stream::Compute));
  if (low_precision())
    handle.low_precision_shard =
        host_.reserve(spec("flat_param.low_precision", Category::UnshardedParameters,
                           handle.shard_elems, param_dtype_, Stream::AllGather));
  if (shards())
    handle.unsharded = host_.reserve(spec("flat_param.unsharded", Category::UnshardedParameters,
                                          handle.padded_elems, param_dtype_, Stream::AllGather));
  else
    handle.unsharded = low_precision() ? handle.low_precision_shard : handle.local_shard;
  handle.flat_gradient = host_.reserve(
      spec("flat_grad", Category::UnshardedGradients, handle.elems, param_dtype_, Stream::Compute));
  handle.gradient = host_.reserve(
      spec("grad", Category::Gradients, handle.shard_elems, orig_dtype_, Stream::ReduceScatter));
  handle.flat = {
      .storage = handle.unsharded,
      .elems = handle.elems,
      .dtype = param_dtype_,
      .requires_grad = std::ranges::any_of(process_.groups[unit].parameters, [&](int index) {
        return process_.model.parameters[index].trains();
      })};
  return handle;
}

void Fsdp1::init(Optimizer&) {
  views_.resize(process_.model.parameters.size());
  for (std::size_t unit = 0; unit < process_.groups.size(); ++unit)
    handles_.push_back(make_handle(static_cast<int>(unit)));
  for (Handle& handle : handles_)
    handle.flat.node = &process_.autograd.add_leaf(
        handle.name + ".accumulate", handle.unit, [this, unit = handle.unit](Tensor gradient) {
          accumulate(handles_[unit], std::move(gradient));
          post_backward(handles_[unit]);
        });
}

void Fsdp1::begin_micro_step(Sync sync) {
  sync_ = sync;
  if (std::exchange(drops_gradients_, false)) free_gradients();
  for (Handle& handle : handles_)
    handle.needs_forward_unshard = true;
}

void Fsdp1::unshard(Handle& handle) {
  if (shards() && handle.unsharded->allocated()) return;  // kept from forward
  const UnitScope scope(host_, handle.unit);              // it may be prefetched for another
  if (low_precision()) {
    handle.low_precision_shard->allocate();
    host_.issue(handle.name + ".flat_param.cast", Stream::AllGather,
                Compute{Kernel::Elementwise, {}}, {whole(handle.local_shard)},
                {whole(handle.low_precision_shard)});
  }
  constexpr std::size_t kMostInFlight = 2;  // _FreeEventQueue
  if (process_.job().strategy.limit_all_gathers && frees_.size() >= kMostInFlight) {
    host_.wait_for(handle.name + ".rate_limiter", frees_.front());
    frees_.pop_front();
  }
  if (!shards()) return;
  handle.unsharded->allocate();
  const StoragePtr& shard = low_precision() ? handle.low_precision_shard : handle.local_shard;
  host_.issue(handle.name + ".all_gather", Stream::AllGather, AllGather{Group::Shard},
              {whole(shard)}, {whole(handle.unsharded)});
  if (low_precision()) handle.low_precision_shard->free();
}

/// _use_unsharded_views: forward reads views that autograd knows, made as the unit is unsharded.
void Fsdp1::make_views(Handle& handle) {
  const Unit& unit = process_.plan().units[handle.unit];
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> places;  // of the parameters among them
  std::int64_t at = 0;
  for (const UnitParameter& parameter : unit.parameters) {
    if (parameter.at > at) sizes.push_back(parameter.at - at);
    places.push_back(sizes.size());
    sizes.push_back(parameter.elems);
    at = parameter.at + parameter.elems;
  }
  const UnitScope scope(host_, handle.unit);
  process_.aten.enter_module(handle.name + ".flat_param");
  const Tensors parts = process_.aten.split_leaf(
      handle.flat, sizes, [this, &handle] { return make_flat_gradient(handle); });
  for (std::size_t i = 0; i < places.size(); ++i)
    views_[process_.groups[handle.unit].parameters[i]] = parts[places[i]];
}

void Fsdp1::reshard(Handle& handle, bool free) {
  if (free && shards() && handle.unsharded->allocated()) {
    handle.unsharded->record_stream(Stream::Compute);
    handle.unsharded->free();
    if (process_.job().strategy.limit_all_gathers) frees_.push_back(host_.latest(Stream::Compute));
  }
  if (low_precision() && !shards()) handle.low_precision_shard->free();
  handle.prefetched = false;
}

void Fsdp1::prefetch_forward(const Handle& handle) {
  if (process_.job().strategy.forward_prefetch == 0 || !knows_order_) return;
  const std::size_t next = static_cast<std::size_t>(handle.unit) + 1;
  if (next >= handles_.size()) return;
  Handle& target = handles_[next];
  if (!target.needs_forward_unshard || target.prefetched) return;
  unshard(target);
  make_views(target);
  target.prefetched = true;
}

Tensors Fsdp1::pre_forward(int unit, Tensors inputs) {
  Handle& handle = handles_[unit];
  if (!handle.prefetched) {
    unshard(handle);
    make_views(handle);
  }
  handle.needs_forward_unshard = false;
  prefetch_forward(handle);
  host_.enter_unit(unit);
  if (!handle.flat.requires_grad) reshard_behind(handle, inputs);
  return inputs;
}

/// _register_post_backward_reshard_only_hook: of a unit without gradients, once
/// those of its inputs are there.
void Fsdp1::reshard_behind(const Handle& handle, Tensors& inputs) {
  Tensors differentiable;
  std::ranges::copy_if(inputs, std::back_inserter(differentiable), &Tensor::requires_grad);
  if (differentiable.empty()) return;
  const Tensors seen =
      process_.aten.identity(handle.name + ".post_backward", differentiable,
                             [this, unit = handle.unit] { post_backward_reshard(handles_[unit]); });
  std::size_t next = 0;
  for (Tensor& input : inputs)
    if (input.requires_grad) input = seen[next++];
}

/// The root keeps its parameters: its backward comes first.
void Fsdp1::post_forward(int unit, const Tensors& outputs) {
  Handle& handle = handles_[unit];
  reshard(handle, !is_root(unit) && reshards_after_forward());
  handle.forward_index = static_cast<int>(forward_order_.size());
  forward_order_.push_back(unit);
  handle.needs_backward_unshard = true;
  handle.ran_pre_backward = false;
  for (const Tensor& output : outputs)
    if (output.requires_grad)
      output.node->pre_hooks.emplace_back([this, unit] { pre_backward(handles_[unit]); });
}

void Fsdp1::prefetch_backward(const Handle& handle, BackwardPrefetch when) {
  if (process_.job().strategy.backward_prefetch != when || handle.forward_index.value_or(0) < 1)
    return;
  Handle& target = handles_[forward_order_[*handle.forward_index - 1]];
  if (!target.needs_backward_unshard || target.prefetched) return;
  unshard(target);
  target.prefetched = true;
}

void Fsdp1::pre_backward(Handle& handle) {
  if (handle.ran_pre_backward) return;
  host_.enter_unit(handle.unit);
  if (handle.needs_backward_unshard && !handle.prefetched) unshard(handle);
  handle.needs_backward_unshard = false;
  prefetch_backward(handle, BackwardPrefetch::Pre);
  handle.ran_pre_backward = true;
}

Tensor Fsdp1::make_flat_gradient(Handle& handle) {
  Tensor gradient{.storage = handle.flat_gradient, .elems = handle.elems, .dtype = param_dtype_};
  if (handle.flat_gradient->allocated())  // it is accumulated, or waits for the next forward
    gradient.storage = host_.reserve({.name = handle.name + ".flat_grad.new",
                                      .category = Category::UnshardedGradients,
                                      .elems = handle.elems,
                                      .dtype = param_dtype_});
  gradient.storage->allocate();
  return gradient;
}

// The gradient is given away: it goes with the call.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Fsdp1::accumulate(Handle& handle, Tensor gradient) {
  if (gradient.storage == handle.flat_gradient) return;
  const View sum = whole(handle.flat_gradient);
  host_.issue(handle.name + ".flat_grad.add", Stream::Compute, Compute{Kernel::Add, {}},
              {sum, gradient.view()}, {sum});
}

void Fsdp1::post_backward_reshard(Handle& handle) {
  host_.enter_unit(handle.unit);
  reshard(handle, frees_in_backward());
  prefetch_backward(handle, BackwardPrefetch::Post);
}

void Fsdp1::post_backward(Handle& handle) {
  post_backward_reshard(handle);
  if (sync_ == Sync::No) return;
  Tensor gradient{.storage = handle.flat_gradient, .elems = handle.elems, .dtype = param_dtype_};
  handle.flat_gradient->record_stream(Stream::ReduceScatter);
  if (reduce_dtype_ != param_dtype_) {
    gradient.storage = cast(handle, gradient, reduce_dtype_);
    gradient.dtype = reduce_dtype_;
  }
  if (shards())
    reduce_shards(handle, std::move(gradient));
  else
    all_reduce(handle, std::move(gradient));
}

StoragePtr Fsdp1::cast(const Handle& handle, const Tensor& gradient, Dtype dtype) {
  StoragePtr result = host_.allocate({.name = handle.name + ".grad.cast",
                                      .category = Category::CommunicationBuffers,
                                      .elems = gradient.elems,
                                      .dtype = dtype,
                                      .stream = Stream::ReduceScatter});
  host_.issue(handle.name + ".grad.to", Stream::ReduceScatter, Compute{Kernel::Elementwise, {}},
              {gradient.view()}, {whole(result)});
  return result;
}

/// The reduce-scatter takes equal parts: a gradient that does not divide is copied.
Tensor Fsdp1::padded(const Handle& handle, const Tensor& gradient) {
  if (handle.elems == handle.padded_elems) return gradient;
  Tensor result = gradient;
  result.elems = handle.padded_elems;
  result.storage = host_.allocate({.name = handle.name + ".grad.padded",
                                   .category = Category::CommunicationBuffers,
                                   .elems = handle.padded_elems,
                                   .dtype = gradient.dtype,
                                   .stream = Stream::ReduceScatter});
  host_.issue(handle.name + ".grad.pad", Stream::ReduceScatter, Compute{Kernel::Elementwise, {}},
              {gradient.view()}, {result.view()});
  return result;
}

// The gradient is given away: it goes with the call.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Fsdp1::reduce_shards(Handle& handle, Tensor gradient) {
  const Tensor whole_gradient = padded(handle, gradient);
  const bool direct = reduce_dtype_ == orig_dtype_ && !handle.gradient->allocated();
  StoragePtr output = handle.gradient;
  if (!direct)
    output = host_.reserve({.name = handle.name + ".grad.new",
                            .category = Category::Gradients,
                            .elems = handle.shard_elems,
                            .dtype = reduce_dtype_,
                            .stream = Stream::ReduceScatter});
  output->allocate();
  const auto ranks = static_cast<double>(mesh_.shard);
  const auto replicas = static_cast<double>(mesh_.replicate);
  const bool replicates = mesh_.replicate > 1;
  const std::vector<int> final{handle.unit};
  host_.issue(handle.name + ".reduce_scatter", Stream::ReduceScatter,
              ReduceScatter{Group::Shard, 1 / ranks, 1, replicates ? std::vector<int>{} : final},
              {whole_gradient.view()}, {whole(output)});
  if (replicates)
    host_.issue(handle.name + ".all_reduce", Stream::AllReduce,
                AllReduce{Group::Replicate, 1 / replicas, 1, final}, {whole(output)},
                {whole(output)});
  if (!direct) {
    const bool adds = handle.gradient->allocated();
    handle.gradient->allocate();
    const View sum = whole(handle.gradient);
    host_.issue(handle.name + (adds ? ".grad.add" : ".grad.to_param"), Stream::ReduceScatter,
                Compute{Kernel::Elementwise, {}}, {whole(output)}, {sum});
  }
  handle.flat_gradient->free();
}

// The gradient is given away: it goes with the call.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Fsdp1::all_reduce(Handle& handle, Tensor gradient) {
  const auto ranks = static_cast<double>(process_.plan().world_size());
  const View view = gradient.view();
  if (ranks > 1)
    host_.issue(handle.name + ".all_reduce", Stream::ReduceScatter,
                AllReduce{Group::World, 1 / ranks, 1, {handle.unit}}, {view}, {view});
  if (gradient.storage == handle.flat_gradient && reduce_dtype_ == orig_dtype_) return;
  handle.gradient->allocate();
  host_.issue(handle.name + ".grad.to_param", Stream::ReduceScatter,
              Compute{Kernel::Elementwise, {}}, {view}, {whole(handle.gradient)});
  handle.flat_gradient->free();
}

void Fsdp1::end_backward() {
  for (Handle& handle : handles_) {
    if (shards() && handle.unsharded->allocated()) reshard(handle, frees_in_backward());
    handle.ran_pre_backward = false;
    handle.needs_backward_unshard = false;
    handle.prefetched = false;
    handle.forward_index.reset();
  }
  forward_order_.clear();
}

void Fsdp1::step(Optimizer& optimizer) {
  optimizer.clip(trained(), Optimizer::Norm::OfRanks);
  optimizer.step(trained());
}

void Fsdp1::zero_grad() {
  if (process_.job().strategy.use_orig_params) {
    drops_gradients_ = true;  // _reset_flat_param_grad_info_if_needed, before the next forward
    return;
  }
  free_gradients();
}

void Fsdp1::free_gradients() {
  for (Handle& handle : handles_) {
    handle.gradient->free();
    if (!shards()) handle.flat_gradient->free();
  }
}

std::vector<Trained> Fsdp1::trained() const {
  std::vector<Trained> all;
  for (const Handle& handle : handles_) {
    if (!handle.flat.requires_grad) continue;
    const Unit& unit = process_.plan().units[handle.unit];
    Trained trained{handle.name,
                    whole(handle.local_shard),
                    whole(handle.gradient->allocated() ? handle.gradient : handle.flat_gradient),
                    {},
                    handle.unit};
    for (const RankClass& ranks : process_.plan().classes) {
      const std::int64_t begin = shards() ? ranks.first * handle.shard_elems : 0;
      std::int64_t elems = 0;
      std::int64_t parts = 0;
      for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
        const UnitParameter& parameter = unit.parameters[p];
        if (!process_.model.parameters[process_.groups[handle.unit].parameters[p]].trains())
          continue;
        const std::int64_t from = std::max(begin, parameter.at);
        const std::int64_t to =
            std::min(begin + handle.shard_elems, parameter.at + parameter.elems);
        elems += std::max<std::int64_t>(to - from, 0);
        parts += to > from ? 1 : 0;
      }
      const bool by_parameter = process_.job().strategy.use_orig_params;
      trained.class_elems.push_back(by_parameter ? elems : handle.shard_elems);
      trained.class_tensors.push_back(by_parameter ? parts : 1);
    }
    all.push_back(std::move(trained));
  }
  return all;
}

}  // namespace

std::unique_ptr<Engine> make_fsdp1(const Process& process) {
  return std::make_unique<Fsdp1>(process);
}

}  // namespace shardplan::torch
