#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "planner/torch/engine.h"
#include "plans/error.h"

namespace shardplan::torch {
namespace {

/// FSDPParam: one parameter of a group, sharded by rows.
struct Param {
  int index = -1;  // in the model
  std::string name;
  Dtype orig_dtype = Dtype::Float32;  // of the shard
  Dtype dtype = Dtype::Float32;       // of what operators read
  std::int64_t elems = 0;
  std::int64_t shard_elems = 0;  // padded rows of one rank
  View shard;
  StoragePtr unsharded;     // all-gather output of the parameter, whole rows of all ranks
  StoragePtr post_forward;  // its part of a smaller group's copy, between forward and backward
  Tensor tensor;            // views `unsharded`
  Tensor gradient;
  StoragePtr accumulated;  // unsharded gradients in the reduce dtype, while not reduced
};

/// Outputs of an all-gather, by dtype: PyTorch has one, of bytes where dtypes differ.
using Outputs = std::map<Dtype, StoragePtr>;

/// FSDPParamGroup: the parameters of a unit, which communicate together.
struct ParamGroup {
  enum class State { Sharded, ShardedPostForward, Unsharded } state = State::Sharded;
  enum class Training { Idle, Forward, PreBackward, PostBackward } training = Training::Idle;
  std::string name;
  int unit = -1;
  std::vector<Param> params;
  Dtype orig_dtype = Dtype::Float32;    // of the shards that train
  Dtype reduce_dtype = Dtype::Float32;  // of their gradients in collectives
  bool gathered = false;                // an all-gather is issued and not copied out
  Outputs all_gather_output;            // none with one rank
  StoragePtr sharded_gradient;          // output of the reduce-scatter; all parameters' gradients
  StoragePtr all_reduce_input;          // until the end of backward
  std::optional<int> forward_index;     // in the order of forward
};

/// torch.distributed.fsdp.fully_shard, hybrid sharding by a 2-D mesh, and replicate(), which is the
/// same without shards (torch/distributed/fsdp/_fully_shard).
class Fsdp2 : public Engine {
 public:
  explicit Fsdp2(const Process& process)
      : process_(process), host_(process.host), mesh_(process.plan().mesh) {}

  void init(Optimizer& optimizer) override;
  Tensor parameter(int index) override {
    const auto [group, param] = places_[index];
    return groups_[group].params[param].tensor;
  }
  std::vector<Hooked> hooked() const override { return hooked_units(process_.groups); }
  void begin_micro_step(Sync sync) override { sync_ = sync; }
  Tensors pre_forward(int unit, Tensors inputs) override;
  void post_forward(int unit, const Tensors& outputs) override;
  void end_forward() override { previous_all_gather_.clear(); }
  void end_backward() override;
  std::vector<Trained> trained() const override;
  void zero_grad() override {
    for (ParamGroup& group : groups_)
      group.sharded_gradient = nullptr;
  }

 private:
  Param make_param(int index, int unit);
  bool is_root(int unit) const { return process_.groups[unit].modules.front().empty(); }
  void prefetch_forward(int unit);

  void find_dtypes(ParamGroup& group) const;
  /// CPUOffloadPolicy: shards, their gradients and what the optimizer keeps are on the host.
  bool offloads() const { return process_.job().strategy.cpu_offload.params; }
  View on_device(const Param& param, StoragePtr& copy, Stream stream);
  std::vector<View> gather_inputs(const ParamGroup& group, std::vector<StoragePtr>& held);
  std::vector<View> gather_inputs_from_host(const ParamGroup& group, std::vector<StoragePtr>& held);
  void unshard(ParamGroup& group);
  void wait_for_unshard(ParamGroup& group);
  void copy_out(ParamGroup& group);
  bool keeps_after_forward(const ParamGroup& group) const;
  void reshard_after_forward(ParamGroup& group);
  void reshard(ParamGroup& group);
  void pre_backward(ParamGroup& group);
  void post_backward(ParamGroup& group);
  void accumulate(const ParamGroup& group, Param& param);
  Tensors take_gradients(ParamGroup& group);
  void reduce(ParamGroup& group, Tensors gradients);
  StoragePtr reduced(ParamGroup& group, std::int64_t elems);
  StoragePtr to_host(const ParamGroup& group, const StoragePtr& gradient, std::int64_t elems);

  View whole(const StoragePtr& storage) const { return host_.whole(storage); }
  Dtype dtype_of(const View& view) const { return host_.plan().buffers[view.buffer].dtype; }

  const Process& process_;
  Host& host_;
  const Mesh mesh_;
  Sync sync_ = Sync::Yes;
  std::vector<ParamGroup> groups_;                   // by unit
  std::vector<std::pair<int, std::size_t>> places_;  // group and place in it, by parameter
  std::vector<int> forward_order_;                   // units
  Outputs previous_all_gather_;  // kept for the next group's copy-in, which may overlap
  StoragePtr reduce_scatter_input_;
};

Param Fsdp2::make_param(int index, int unit) {
  const Parameter& parameter = process_.model.parameters[index];
  const std::int64_t rows = parameter.shape.empty() ? 1 : parameter.shape.front();
  const Job& job = process_.job();
  Param param{.index = index, .name = parameter.name, .elems = parameter.elements()};
  param.orig_dtype = stored_dtype(job, parameter);
  param.dtype = compute_dtype(job, parameter);
  param.shard_elems = ceil_div(rows, mesh_.shard) * (param.elems / rows);
  param.shard = whole(host_.resident({.name = param.name,
                                      .category = Category::Parameters,
                                      .elems = param.shard_elems,
                                      .dtype = param.orig_dtype,
                                      .space = offloads() ? Space::Pinned : Space::Device}));
  param.unsharded = host_.reserve({.name = param.name + ".unsharded",
                                   .category = Category::UnshardedParameters,
                                   .elems = param.shard_elems * mesh_.shard,
                                   .dtype = param.dtype});
  param.tensor = {.storage = param.unsharded,
                  .elems = param.elems,
                  .dtype = param.dtype,
                  .requires_grad = parameter.trains()};
  const std::size_t place = groups_[unit].params.size();
  places_[index] = {unit, place};
  // As PyTorch's AccumulateGrad: the first gradient is taken as it is, others are added to it.
  param.tensor.node = &process_.autograd.add_leaf(
      param.name + ".accumulate", unit, [this, unit, place](Tensor gradient) {
        Param& leaf = groups_[unit].params[place];
        if (!leaf.gradient) {
          leaf.gradient = std::move(gradient);
          return;
        }
        host_.issue(leaf.name + ".grad.add", Stream::Compute, Compute{Kernel::Add, {}},
                    {leaf.gradient.view(), gradient.view()}, {leaf.gradient.view()});
      });
  return param;
}

void Fsdp2::init(Optimizer&) {
  places_.resize(process_.model.parameters.size());
  groups_.resize(process_.groups.size());
  for (std::size_t unit = 0; unit < groups_.size(); ++unit) {
    groups_[unit].name = process_.groups[unit].name;
    groups_[unit].unit = static_cast<int>(unit);
    for (const int index : process_.groups[unit].parameters)
      groups_[unit].params.push_back(make_param(index, static_cast<int>(unit)));
    find_dtypes(groups_[unit]);
  }
}

/// Of gradients, which go into one collective.
void Fsdp2::find_dtypes(ParamGroup& group) const {
  const auto& precision = process_.job().strategy.mixed_precision;
  const Param* first = nullptr;
  for (const Param& param : group.params) {
    if (!param.tensor.requires_grad) continue;
    if (first == nullptr) first = &param;
    if (param.orig_dtype != first->orig_dtype)
      throw InputError(
          fmt::format("engine fsdp2: {} trains {} in {} and {} in {}; FSDP2 reduces gradients of a "
                      "unit in one dtype",
                      group.name, first->name, to_string(first->orig_dtype), param.name,
                      to_string(param.orig_dtype)));
  }
  if (first == nullptr) return;
  group.orig_dtype = first->orig_dtype;
  group.reduce_dtype = precision ? precision->reduce : first->orig_dtype;
}

void Fsdp2::unshard(ParamGroup& group) {
  if (group.gathered || group.state == ParamGroup::State::Unsharded) return;
  group.gathered = true;
  if (mesh_.shard == 1) return;
  const UnitScope scope(host_, group.unit);  // it may be prefetched for another
  const bool small_group = group.state == ParamGroup::State::ShardedPostForward;
  const std::int64_t ranks = small_group ? mesh_.span : mesh_.shard;
  std::vector<StoragePtr> held;
  const std::vector<View> shards = gather_inputs(group, held);
  std::map<Dtype, std::int64_t> elems;
  for (const View& shard : shards)
    elems[dtype_of(shard)] += shard.elems;
  std::vector<View> own;
  for (const auto& [dtype, count] : elems) {
    StoragePtr& output = group.all_gather_output[dtype];
    output = host_.allocate({.name = group.name + ".all_gather.output",
                             .category = Category::CommunicationBuffers,
                             .elems = count * ranks,
                             .dtype = dtype,
                             .stream = Stream::AllGather});
    own.push_back({output->buffer(), 0, count});
  }
  host_.issue(group.name + ".all_gather.copy_in", Stream::AllGather,
              Compute{Kernel::Elementwise, {}}, shards, own);
  std::vector<View> parts;
  std::map<Dtype, std::int64_t> at;
  for (const View& shard : shards) {
    const Dtype dtype = dtype_of(shard);
    parts.push_back({group.all_gather_output[dtype]->buffer(), at[dtype], shard.elems * ranks});
    at[dtype] += shard.elems * ranks;
  }
  host_.issue(group.name + ".all_gather", Stream::AllGather,
              AllGather{small_group ? Group::Span : Group::Shard}, shards, parts);
}

/// The shard, or a copy of one that is on the host.
View Fsdp2::on_device(const Param& param, StoragePtr& copy, Stream stream) {
  if (!offloads()) return param.shard;
  copy = host_.allocate({.name = param.name + ".to_device",
                         .category = Category::CommunicationBuffers,
                         .elems = param.shard.elems,
                         .dtype = param.orig_dtype,
                         .stream = stream});
  host_.issue(param.name + ".to_device", stream, Copy{}, {param.shard}, {whole(copy)});
  return whole(copy);
}

/// FSDPParam.all_gather_inputs: each by itself, copied to the device and then cast.
std::vector<View> Fsdp2::gather_inputs_from_host(const ParamGroup& group,
                                                 std::vector<StoragePtr>& held) {
  std::vector<View> inputs;
  for (const Param& param : group.params) {
    if (param.post_forward) {
      inputs.push_back(whole(param.post_forward));
      continue;
    }
    StoragePtr& copy = held.emplace_back();
    inputs.push_back(on_device(param, copy, Stream::AllGather));
    if (param.dtype == param.orig_dtype) continue;
    const StoragePtr cast = host_.allocate({.name = param.name + ".all_gather.input",
                                            .category = Category::CommunicationBuffers,
                                            .elems = param.shard.elems,
                                            .dtype = param.dtype,
                                            .stream = Stream::AllGather});
    host_.issue(param.name + ".all_gather.cast", Stream::AllGather,
                Compute{Kernel::Elementwise, {}}, {inputs.back()}, {whole(cast)});
    inputs.back() = whole(cast);
    copy = cast;
  }
  return inputs;
}

/// What is gathered, of every parameter; `held`: what copies of it are in, with mixed precision
/// those that are cast (_get_param_all_gather_inputs).
std::vector<View> Fsdp2::gather_inputs(const ParamGroup& group, std::vector<StoragePtr>& held) {
  if (offloads()) return gather_inputs_from_host(group, held);
  std::vector<View> inputs;
  std::vector<View> from;
  std::int64_t elems = 0;
  Dtype dtype = Dtype::Float32;
  for (const Param& param : group.params) {
    inputs.push_back(param.post_forward ? whole(param.post_forward) : param.shard);
    if (param.post_forward || param.dtype == param.orig_dtype) continue;
    from.push_back(param.shard);
    elems += param.shard.elems;
    dtype = param.dtype;
  }
  if (elems == 0) return inputs;
  const StoragePtr cast =
      held.emplace_back(host_.allocate({.name = group.name + ".all_gather.input",
                                        .category = Category::CommunicationBuffers,
                                        .elems = elems,
                                        .dtype = dtype,
                                        .stream = Stream::AllGather}));
  host_.issue(group.name + ".all_gather.cast", Stream::AllGather, Compute{Kernel::Elementwise, {}},
              from, {whole(cast)});
  std::int64_t at = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Param& param = group.params[i];
    if (param.dtype == param.orig_dtype) continue;
    inputs[i] = {cast->buffer(), at, param.shard.elems};
    at += param.shard.elems;
  }
  return inputs;
}

void Fsdp2::copy_out(ParamGroup& group) {
  std::vector<View> from;
  std::vector<View> to;
  std::map<Dtype, std::int64_t> at;
  for (Param& param : group.params) {
    StoragePtr copy;
    StoragePtr cast;
    const View shard = mesh_.shard == 1 ? on_device(param, copy, Stream::Compute) : param.shard;
    if (mesh_.shard == 1 && param.dtype != param.orig_dtype) {
      cast = host_.allocate({.name = param.name + ".cast",
                             .category = Category::CommunicationBuffers,
                             .elems = param.shard_elems,
                             .dtype = param.dtype});
      host_.issue(param.name + ".cast", Stream::Compute, Compute{Kernel::Elementwise, {}}, {shard},
                  {whole(cast)});
    }
    param.unsharded->allocate();
    const View into = whole(param.unsharded);
    if (mesh_.shard > 1) {
      std::int64_t& place = at[param.dtype];
      from.push_back({group.all_gather_output[param.dtype]->buffer(), place, into.elems});
      to.push_back(into);
      place += into.elems;
    } else {
      host_.issue(param.name + ".copy", Stream::Compute, Copy{}, {cast ? whole(cast) : shard},
                  {into});
    }
  }
  if (!to.empty())
    host_.issue(group.name + ".all_gather.copy_out", Stream::Compute, Copy{}, from, to);
}

void Fsdp2::wait_for_unshard(ParamGroup& group) {
  if (!group.gathered) return;
  const bool forward = group.training == ParamGroup::Training::Forward;
  // The output of the group before lives until this copy-out is issued.
  const Outputs previous = forward ? std::exchange(previous_all_gather_, {}) : Outputs{};
  copy_out(group);
  for (Param& param : group.params)
    param.post_forward = nullptr;
  group.state = ParamGroup::State::Unsharded;
  group.gathered = false;
  if (forward && mesh_.shard > 1) previous_all_gather_ = std::exchange(group.all_gather_output, {});
  group.all_gather_output.clear();
}

Tensors Fsdp2::pre_forward(int unit, Tensors inputs) {
  ParamGroup& group = groups_[unit];
  group.training = ParamGroup::Training::Forward;
  unshard(group);
  wait_for_unshard(group);
  Tensors differentiable;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad) {
      differentiable.push_back(inputs[i]);
      places.push_back(i);
    }
  if (!differentiable.empty()) {
    const Tensors seen = process_.aten.identity(group.name + ".post_backward", differentiable,
                                                [this, unit] { post_backward(groups_[unit]); });
    for (std::size_t i = 0; i < places.size(); ++i)
      inputs[places[i]] = seen[i];
  }
  prefetch_forward(unit);
  return inputs;
}

/// set_modules_to_forward_prefetch() of every unit but the root: those that follow.
void Fsdp2::prefetch_forward(int unit) {
  if (is_root(unit)) return;
  for (int ahead = 1; ahead <= process_.job().strategy.forward_prefetch; ++ahead)
    if (unit + ahead < static_cast<int>(groups_.size())) unshard(groups_[unit + ahead]);
}

/// The root keeps its parameters, unless the user says otherwise: its backward comes first. So does
/// a unit of several modules, by which torchtitan wraps norm and head.
bool Fsdp2::keeps_after_forward(const ParamGroup& group) const {
  const auto& reshard = process_.job().strategy.reshard_after_forward;
  if (process_.job().strategy.engine == shardplan::Engine::Replicate) return true;
  if (is_root(group.unit) || process_.groups[group.unit].modules.size() > 1) return true;
  if (reshard) return !reshard->reshard;
  const Strategy sharding = process_.job().strategy.sharding;
  return sharding == Strategy::ShardGradOp || sharding == Strategy::HybridShardZero2;
}

void Fsdp2::reshard_after_forward(ParamGroup& group) {
  if (keeps_after_forward(group)) return;
  if (mesh_.span == 1) return reshard(group);
  for (Param& param : group.params) {
    const std::int64_t elems = param.shard_elems * mesh_.shard / mesh_.span;
    param.post_forward = host_.allocate({.name = param.name + ".post_forward",
                                         .category = Category::UnshardedParameters,
                                         .elems = elems,
                                         .dtype = param.dtype});
    host_.issue(param.name + ".post_forward.clone", Stream::Compute, Copy{.part = Group::Span},
                {whole(param.unsharded)}, {whole(param.post_forward)});
    param.unsharded->free();
  }
  group.state = ParamGroup::State::ShardedPostForward;
}

void Fsdp2::post_forward(int unit, const Tensors& outputs) {
  ParamGroup& group = groups_[unit];
  reshard_after_forward(group);
  group.forward_index = static_cast<int>(forward_order_.size());
  forward_order_.push_back(unit);
  group.training = ParamGroup::Training::Idle;
  for (const Tensor& output : outputs)
    if (output.requires_grad)
      output.node->pre_hooks.emplace_back([this, unit] { pre_backward(groups_[unit]); });
}

void Fsdp2::reshard(ParamGroup& group) {
  if (group.state == ParamGroup::State::Sharded) return;
  for (Param& param : group.params)
    param.unsharded->free();
  group.state = ParamGroup::State::Sharded;
}

void Fsdp2::pre_backward(ParamGroup& group) {
  if (group.training == ParamGroup::Training::PreBackward) return;
  host_.enter_unit(group.unit);
  group.training = ParamGroup::Training::PreBackward;
  unshard(group);
  wait_for_unshard(group);
  if (!group.forward_index) return;
  const int units_ahead = is_root(group.unit) ? 1 : process_.job().strategy.backward_prefetch_units;
  for (int ahead = 1; ahead <= units_ahead && ahead <= *group.forward_index; ++ahead)
    unshard(groups_[forward_order_[*group.forward_index - ahead]]);
  group.forward_index.reset();
}

/// A gradient that is not reduced yet: in the reduce dtype it is kept once more and added to.
void Fsdp2::accumulate(const ParamGroup& group, Param& param) {
  if (!param.gradient || param.gradient.dtype == group.reduce_dtype) return;
  const View gradient = param.gradient.view();
  if (param.accumulated) {
    host_.issue(param.name + ".grad.accumulate", Stream::Compute, Compute{Kernel::Add, {}},
                {whole(param.accumulated), gradient}, {whole(param.accumulated)});
  } else if (sync_ == Sync::No) {
    param.accumulated = host_.allocate({.name = param.name + ".grad.accumulated",
                                        .category = Category::UnshardedGradients,
                                        .elems = param.elems,
                                        .dtype = group.reduce_dtype});
    host_.issue(param.name + ".grad.to", Stream::Compute, Compute{Kernel::Elementwise, {}},
                {gradient}, {whole(param.accumulated)});
  } else {
    return;
  }
  param.gradient = {};
}

void Fsdp2::post_backward(ParamGroup& group) {
  host_.enter_unit(group.unit);
  group.training = ParamGroup::Training::PostBackward;
  for (Param& param : group.params)
    if (param.accumulated) accumulate(group, param);
  if (sync_ == Sync::No) {
    reshard(group);
    for (Param& param : group.params)
      accumulate(group, param);
    return;
  }
  Tensors gradients = take_gradients(group);
  reshard(group);
  if (!gradients.empty()) reduce(group, std::move(gradients));
}

Tensors Fsdp2::take_gradients(ParamGroup& group) {
  Tensors gradients;
  for (Param& param : group.params) {
    if (param.accumulated)
      gradients.push_back({.storage = std::exchange(param.accumulated, nullptr),
                           .elems = param.elems,
                           .dtype = group.reduce_dtype});
    else if (param.gradient)
      gradients.push_back(std::exchange(param.gradient, {}));
  }
  return gradients;
}

void Fsdp2::reduce(ParamGroup& group, Tensors gradients) {
  reduce_scatter_input_ = nullptr;
  group.all_reduce_input = nullptr;
  std::int64_t elems = 0;  // of a shard
  std::vector<View> whole_gradients;
  for (const Param& param : group.params)
    if (param.tensor.requires_grad) elems += param.shard_elems;
  for (const Tensor& gradient : gradients)
    whole_gradients.push_back(gradient.view());
  reduce_scatter_input_ = host_.allocate({.name = group.name + ".reduce_scatter.input",
                                          .category = Category::CommunicationBuffers,
                                          .elems = elems * mesh_.shard,
                                          .dtype = group.reduce_dtype});
  host_.issue(group.name + ".reduce_scatter.copy_in", Stream::Compute,
              Compute{Kernel::Elementwise, {}}, whole_gradients, {whole(reduce_scatter_input_)});
  // A loop variable of foreach_reduce holds the last gradient until it returns.
  gradients.erase(gradients.begin(), gradients.end() - 1);
  StoragePtr output = reduced(group, elems);
  if (offloads()) output = to_host(group, output, elems);
  if (!group.sharded_gradient) {
    group.sharded_gradient = std::move(output);
    return;
  }
  const View sum = whole(group.sharded_gradient);
  const Stream stream = offloads() ? Stream::Host : Stream::ReduceScatter;
  host_.issue(group.name + ".grad.add", stream, Compute{Kernel::Add, {}}, {sum, whole(output)},
              {sum});
}

StoragePtr Fsdp2::to_host(const ParamGroup& group, const StoragePtr& gradient, std::int64_t elems) {
  StoragePtr copy = host_.allocate({.name = group.name + ".grad.on_host",
                                    .category = Category::Gradients,
                                    .elems = elems,
                                    .dtype = group.orig_dtype,
                                    .stream = Stream::ReduceScatter,
                                    .space = Space::Pinned});
  host_.issue(group.name + ".grad.to_host", Stream::ReduceScatter, Copy{}, {whole(gradient)},
              {whole(copy)});
  return copy;
}

/// What the ranks' inputs are reduced to, in the dtype of the parameters.
StoragePtr Fsdp2::reduced(ParamGroup& group, std::int64_t elems) {
  StoragePtr output = host_.allocate({.name = group.name + ".grad",
                                      .category = Category::Gradients,
                                      .elems = elems,
                                      .dtype = group.reduce_dtype,
                                      .stream = Stream::ReduceScatter});
  const double shards = static_cast<double>(mesh_.shard);
  const double replicas = static_cast<double>(mesh_.replicate);
  const View view = whole(output);
  const bool replicates = mesh_.replicate > 1;
  const std::vector<int> final{group.unit};
  if (mesh_.shard > 1)
    host_.issue(group.name + ".reduce_scatter", Stream::ReduceScatter,
                ReduceScatter{Group::Shard, 1, 1 / shards, replicates ? std::vector<int>{} : final},
                {whole(reduce_scatter_input_)}, {view});
  else
    host_.issue(group.name + ".reduce.copy", Stream::ReduceScatter, Copy{},
                {whole(reduce_scatter_input_)}, {view});
  Stream stream = Stream::ReduceScatter;
  if (replicates) {
    stream = Stream::AllReduce;
    host_.issue(group.name + ".all_reduce", stream,
                AllReduce{Group::Replicate, 1, 1 / replicas, final}, {view}, {view});
    group.all_reduce_input = output;
  }
  if (group.reduce_dtype == group.orig_dtype) return output;
  StoragePtr cast = host_.allocate({.name = group.name + ".grad.cast",
                                    .category = Category::Gradients,
                                    .elems = elems,
                                    .dtype = group.orig_dtype,
                                    .stream = stream});
  host_.issue(group.name + ".grad.to", stream, Compute{Kernel::Elementwise, {}}, {view},
              {whole(cast)});
  return cast;
}

void Fsdp2::end_backward() {
  for (ParamGroup& group : groups_) {
    if (group.training != ParamGroup::Training::PostBackward) post_backward(group);
    group.training = ParamGroup::Training::Idle;
    group.all_reduce_input = nullptr;
    group.all_gather_output.clear();  // a gather that no backward waited for
    group.gathered = false;
    group.forward_index.reset();
  }
  forward_order_.clear();
  reduce_scatter_input_ = nullptr;
}

std::vector<Trained> Fsdp2::trained() const {
  std::vector<Trained> all;
  for (const ParamGroup& group : groups_) {
    std::int64_t at = 0;
    for (const Param& param : group.params) {
      if (!param.tensor.requires_grad) continue;
      const View gradient{group.sharded_gradient->buffer(), at, param.shard_elems};
      at += param.shard_elems;
      all.push_back({param.name, param.shard, gradient,
                     local_elems(process_.plan(), process_.model.parameters[param.index]),
                     group.unit});
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<Engine> make_fsdp2(const Process& process) {
  return std::make_unique<Fsdp2>(process);
}

}  // namespace shardplan::torch
