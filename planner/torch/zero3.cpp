#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "planner/torch/deepspeed.h"
#include "planner/torch/optimizer.h"
#include "planner/torch/zero3_parameters.h"

namespace shardplan::torch {
namespace {

/// DeepSpeedZeroOptimizer_Stage3 (deepspeed/runtime/zero/stage3.py), with the hooks that
/// DeepSpeedZeRoOffload (parameter_offload.py) puts around every module.
class Zero3 : public DeepSpeedEngine {
 public:
  explicit Zero3(const Process& process)
      : DeepSpeedEngine(process),
        accum_dtype_(grad_accum_dtype(process.job())),
        overlaps_(options().overlap_comm.value_or(true)),
        stream_(overlaps_ ? Stream::ReduceScatter : Stream::Compute),
        gathers_on_(overlaps_ ? Stream::AllGather : Stream::Compute) {}

  void init(Optimizer& optimizer) override;
  bool first_step_differs() const override { return true; }
  /// The first records the order of modules, the second gathers what then persists.
  int micro_steps_to_settle() const override { return 2; }
  std::vector<Hooked> hooked() const override { return hooked_; }
  bool hooks_recomputation() const override { return true; }
  Tensors pre_forward(int module, Tensors inputs) override;
  void post_forward(int module, const Tensors& outputs) override;
  void begin_micro_step(Sync sync) override;
  void end_backward() override;
  std::vector<Trained> trained() const override;
  void step(Optimizer& optimizer) override;

 private:
  /// Parameters that the optimizer updates at a time.
  struct SubGroup {
    std::int64_t at = 0;  // in the flat buffers of shards
    std::int64_t elems = 0;
  };

  void find_modules();
  std::vector<PartitionedParameter> partition_parameters();
  View make_shard(int index);
  void initialize_one_by_one();
  void make_flat_buffers();
  void find_sub_groups();
  std::int64_t shard_elems(int index) const { return ceil_div(params_[index].elems(), world_); }
  void on_gradient(Param& param) override;
  void reduce_bucket();
  void all_reduce_bucket(std::vector<int> final);
  void reduce_scatter_bucket(std::vector<int> final);
  void partition_gradients(const View& reduced);
  void make_gradient(const SubGroup& group);
  void offload_gradients(const View& reduced);
  void reach_boundary() override { at_boundary_ = true; }
  /// offload_param keeps the shards on the host, always pinned.
  Space parameter_space() const {
    return options().offload_param.device == OffloadDevice::None ? Space::Device : Space::Pinned;
  }
  std::vector<int> finished_units();
  View part(const StoragePtr& flat, const SubGroup& group) const {
    return {flat->buffer(), group.at, group.elems};
  }

  const Dtype accum_dtype_;
  const bool overlaps_;
  const Stream stream_;  // of reductions
  const Stream gathers_on_;
  std::vector<Hooked> hooked_;  // modules, outer ones first
  std::vector<PartitionedModule> modules_;
  std::vector<bool> reads_positions_;  // by module: its input has no gradient
  std::optional<ParameterCoordinator> coordinator_;
  std::vector<std::int64_t> shard_at_;  // by parameter: in the flat buffers
  std::int64_t shards_elems_ = 0;
  std::int64_t largest_shard_ = 0;
  std::vector<StoragePtr> shard_storages_;  // by parameter
  StoragePtr shards_;
  StoragePtr master_;
  StoragePtr gradient_shards_;
  StoragePtr bucket_;
  StoragePtr host_gradient_;  // float32, where the optimizer is offloaded
  bool at_boundary_ = false;  // the last micro-step
  bool accumulates_ = false;  // an earlier micro-step has left gradients
  std::vector<SubGroup> sub_groups_;
  StoragePtr gradient_;  // float32, of the sub-group that is updated
  std::size_t updated_ = 0;
  std::vector<int> bucket_params_;
  std::int64_t bucket_elems_ = 0;
  std::vector<int> unit_of_;           // by parameter
  std::vector<std::int64_t> missing_;  // gradients, by unit, of this backward
};

/// A module's own parameters are those that its operators use: a tied one is several modules'.
void Zero3::find_modules() {
  unit_of_.resize(params_.size(), -1);
  for (std::size_t unit = 0; unit < process_.groups.size(); ++unit)
    for (const int index : process_.groups[unit].parameters)
      unit_of_[index] = static_cast<int>(unit);
  std::map<std::string, std::set<int>> used;
  std::set<std::string> positions;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(process_.model.dag))) {
    const Operator& op = process_.model.dag[vertex];
    used[op.module].insert(op.parameters.begin(), op.parameters.end());
    if (op.kind == OperatorKind::PositionEmbedding) positions.insert(op.module);
  }
  for (const Module& module : process_.model.modules) {
    if (module.class_name == "ModuleList" || module.class_name == "ModuleDict") continue;
    const std::set<int>& own = used[module.path];
    const int unit = own.empty() ? -1 : unit_of_[*own.begin()];
    hooked_.push_back({{module.path}, unit});
    modules_.push_back({{own.begin(), own.end()}, unit});
    reads_positions_.push_back(positions.contains(module.path));
  }
}

/// Persistent: mark_persistent_parameters.
std::vector<PartitionedParameter> Zero3::partition_parameters() {
  std::vector<PartitionedParameter> parameters;
  std::int64_t persistent = 0;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    Param& param = params_[i];
    PartitionedParameter& made = parameters.emplace_back();
    made.name = param.name;
    made.shard = make_shard(static_cast<int>(i));
    if (world_ > 1 || parameter_space() != Space::Device) {
      param.tensor.storage = host_.reserve({.name = param.name + ".gathered",
                                            .category = Category::UnshardedParameters,
                                            .elems = made.shard.elems * world_,
                                            .dtype = dtype_,
                                            .stream = gathers_on_});
    } else {
      param.tensor.storage = shard_storages_[i];
      param.tensor.at = made.shard.at;
    }
    made.tensor = param.tensor;
    made.persists = param.elems() <= options().param_persistence_threshold &&
                    param.elems() <= options().model_persistence_threshold - persistent;
    if (made.persists) persistent += param.elems();
  }
  return parameters;
}

/// Of what trains all shards are in one flat buffer.
View Zero3::make_shard(int index) {
  const std::int64_t elems = shard_elems(index);
  const bool trains = params_[index].tensor.requires_grad;
  shard_storages_.push_back(trains ? shards_
                                   : resident(params_[index].name, Category::Parameters, elems,
                                              dtype_, parameter_space()));
  return {shard_storages_.back()->buffer(), trains ? shard_at_[index] : 0, elems};
}

void Zero3::init(Optimizer&) {
  make_params();
  find_modules();
  find_sub_groups();
  make_flat_buffers();
  coordinator_.emplace(process_, modules_, partition_parameters());
  initialize_one_by_one();
}

/// _create_fp16_sub_groups: each closes once it holds sub_group_size elements of this rank.
void Zero3::find_sub_groups() {
  shard_at_.resize(params_.size());
  std::int64_t at = 0;
  bool open = false;
  for (const int index : trained_) {
    shard_at_[index] = at;
    if (!open) sub_groups_.push_back({.at = at});
    at += shard_elems(index);
    sub_groups_.back().elems = at - sub_groups_.back().at;
    largest_shard_ = std::max(largest_shard_, shard_elems(index));
    open = sub_groups_.back().elems < options().sub_group_size;
  }
  shards_elems_ = at;
}

void Zero3::make_flat_buffers() {
  const Space space = optimizer_space();
  shards_ =
      resident("parameter_shards", Category::Parameters, shards_elems_, dtype_, parameter_space());
  master_ =
      resident("fp32_partitions", Category::OptimizerState, shards_elems_, Dtype::Float32, space);
  gradient_shards_ =
      resident("gradient_partitions", Category::Gradients, shards_elems_, accum_dtype_, space);
  if (offloads())
    host_gradient_ =
        resident("fp32_partitions.grad", Category::Gradients, shards_elems_, Dtype::Float32, space);
  if (options().contiguous_gradients)
    bucket_ = resident("ipg_bucket", Category::CommunicationBuffers, options().reduce_bucket_size,
                       comm_dtype_);
}

/// Init._convert_to_zero_parameters: whole, as rank 0 has it, then the shard of each parameter.
void Zero3::initialize_one_by_one() {
  for (std::size_t i = 0; i < params_.size() && world_ > 1; ++i) {
    const View shard = coordinator_->parameter(static_cast<int>(i)).shard;
    const StoragePtr before = allocate(params_[i].name + ".before_partitioning",
                                       Category::Temporaries, params_[i].elems(), dtype_);
    broadcast_model({whole(before)});
    const std::int64_t elems = std::min(shard.elems, params_[i].elems());
    launch(params_[i].name + ".partition", {{before->buffer(), 0, elems}},
           {{shard.buffer, shard.at, elems}});
  }
  launch("fp32_partitions.to", {whole(shards_)}, {whole(master_)});
}

Tensors Zero3::pre_forward(int module, Tensors inputs) {
  if (hooked_[module].modules.front().empty()) coordinator_->begin_forward();
  coordinator_->fetch(module, Phase::Forward);
  if (process_.aten.recomputes()) return inputs;
  if (reads_positions_[module]) return inputs;
  Tensors differentiable;
  std::ranges::copy_if(inputs, std::back_inserter(differentiable), &Tensor::requires_grad);
  if (differentiable.empty()) return inputs;
  const Tensors seen =
      process_.aten.identity(hooked_[module].modules.front() + ".post_backward", differentiable,
                             [this, module] { coordinator_->release(module, Phase::Backward); });
  std::size_t next = 0;
  for (Tensor& input : inputs)
    if (input.requires_grad) input = seen[next++];
  return inputs;
}

/// Outer modules return later, and their backward comes first.
void Zero3::post_forward(int module, const Tensors& outputs) {
  coordinator_->release(module, Phase::Forward);
  if (process_.aten.recomputes()) return;
  auto fetched = std::make_shared<bool>(false);
  for (const Tensor& output : outputs) {
    if (!output.requires_grad) continue;
    auto& hooks = output.node->pre_hooks;
    hooks.insert(hooks.begin(), [this, module, fetched] {
      if (!std::exchange(*fetched, true)) coordinator_->fetch(module, Phase::Backward);
    });
  }
}

/// reduce_independent_p_g_buckets_and_remove_grads.
void Zero3::on_gradient(Param& param) {
  const std::int64_t most = options().reduce_bucket_size;
  if (bucket_elems_ + param.elems() > most && bucket_elems_ > 0) reduce_bucket();
  if (bucket_ && bucket_elems_ + param.elems() <= most) {
    Tensor inside = param.gradient;
    inside.storage = bucket_;
    inside.at = bucket_elems_;
    inside.dtype = comm_dtype_;
    launch(param.name + ".grad.to_bucket", {param.gradient.view()}, {inside.view()}, stream_);
    param.gradient.storage->record_stream(stream_);
    param.gradient = std::move(inside);
  }
  bucket_params_.push_back(static_cast<int>(&param - params_.data()));
  bucket_elems_ += param.elems();
}

/// Units of which no gradient is missing any more.
std::vector<int> Zero3::finished_units() {
  std::vector<int> finished;
  for (const int index : bucket_params_)
    if (--missing_[unit_of_[index]] == 0) finished.push_back(unit_of_[index]);
  return finished;
}

/// __reduce_and_partition_ipg_grads.
void Zero3::reduce_bucket() {
  if (bucket_params_.empty()) return;
  std::ranges::sort(bucket_params_);
  const UnitScope scope(host_, unit_of_[bucket_params_.front()]);
  const bool oversized = bucket_elems_ > options().reduce_bucket_size;
  if (bucket_ && !oversized && !options().reduce_scatter)
    all_reduce_bucket(finished_units());
  else
    reduce_scatter_bucket(finished_units());
  for (const int index : bucket_params_) {
    params_[index].gradient.storage->record_stream(stream_);
    params_[index].gradient = {};
  }
  bucket_params_.clear();
  bucket_elems_ = 0;
}

/// __avg_scatter_contiguous_grads: all ranks get all, and keep their parts. The scaling behind it
/// makes a copy.
void Zero3::all_reduce_bucket(std::vector<int> final) {
  const View bucket{bucket_->buffer(), 0, bucket_elems_};
  all_reduce("all_reduce.bucket", bucket, std::move(final), stream_);
  const StoragePtr scaled = allocate("ipg_bucket.scaled", Category::CommunicationBuffers,
                                     bucket_elems_, comm_dtype_, stream_);
  launch("ipg_bucket.mul", {bucket}, {whole(scaled)}, stream_);
  partition_gradients(whole(scaled));
}

/// __avg_scatter_grads: parts of every gradient, padded, by rank; reduced in place. One gradient
/// that divides is not copied for it.
void Zero3::reduce_scatter_bucket(std::vector<int> final) {
  std::vector<View> gradients;
  std::int64_t elems = 0;  // of a rank
  for (const int index : bucket_params_) {
    gradients.push_back(params_[index].gradient.view());
    elems += shard_elems(index);
  }
  StoragePtr flat;
  View parts = gradients.front();
  const bool casts = host_.plan().buffers[parts.buffer].dtype != comm_dtype_;
  if (gradients.size() > 1 || parts.elems != elems * world_ || casts) {
    flat = allocate("ipg_bucket.parts", Category::CommunicationBuffers, elems * world_, comm_dtype_,
                    stream_);
    launch("ipg_bucket.cat", gradients, {whole(flat)}, stream_);
    parts = whole(flat);
  }
  const View own{parts.buffer, parts.at, elems};
  host_.issue("reduce_scatter", stream_, ReduceScatter{Group::World, 1, 1, std::move(final)},
              {parts}, {own});
  partition_gradients(own);
}

/// partition_grads: copied, or added, to the shards of the step.
void Zero3::partition_gradients(const View& reduced) {
  StoragePtr cast;
  View from = reduced;
  std::int64_t elems = 0;  // of a rank
  for (const int index : bucket_params_)
    elems += shard_elems(index);
  from.elems = std::min(from.elems, elems);
  if (comm_dtype_ != accum_dtype_) {
    cast = allocate("gradient_partitions.cast", Category::Temporaries, from.elems, accum_dtype_,
                    stream_);
    launch("gradient_partitions.to", {from}, {whole(cast)}, stream_);
    from = whole(cast);
  }
  if (offloads()) return offload_gradients(from);
  std::vector<View> into;
  for (const int index : bucket_params_)
    into.push_back({gradient_shards_->buffer(), shard_at_[index], shard_elems(index)});
  launch("gradient_partitions.keep", {from}, into, stream_);
}

/// Each shard goes to the host, after what is there has been added to it on the device; at the last
/// micro-step its norm is taken, and it goes there in float32, too.
void Zero3::offload_gradients(const View& reduced) {
  std::int64_t at = reduced.at;
  for (const int index : bucket_params_) {
    const View part{reduced.buffer, at, shard_elems(index)};
    const View kept{gradient_shards_->buffer(), shard_at_[index], shard_elems(index)};
    at += shard_elems(index);
    const StoragePtr copy = allocate(params_[index].name + ".grad.shard", Category::Temporaries,
                                     part.elems, accum_dtype_, stream_);
    if (accumulates_) {
      launch(params_[index].name + ".grad.fetch", {kept}, {whole(copy)}, stream_);
      launch(params_[index].name + ".grad.add", {part, whole(copy)}, {whole(copy)}, stream_);
      launch(params_[index].name + ".grad.offload", {whole(copy)}, {kept}, stream_);
    } else {
      launch(params_[index].name + ".grad.offload", {part}, {kept}, stream_);
      launch(params_[index].name + ".grad.fetch", {kept}, {whole(copy)}, stream_);
    }
    if (!at_boundary_) continue;
    allocate("grad_norm.copy", Category::Temporaries, part.elems, Dtype::Float64, stream_);
    const StoragePtr wide =
        accum_dtype_ == Dtype::Float32
            ? copy
            : allocate(params_[index].name + ".grad.fp32", Category::Temporaries, part.elems,
                       Dtype::Float32, stream_);
    if (wide != copy)
      launch(params_[index].name + ".grad.to", {whole(copy)}, {whole(wide)}, stream_);
    launch(params_[index].name + ".grad.offload_fp32", {whole(wide)},
           {{host_gradient_->buffer(), shard_at_[index], part.elems}}, stream_);
  }
}

void Zero3::begin_micro_step(Sync sync) {
  sync_ = sync;
  missing_.assign(process_.groups.size(), 0);
  for (const int index : trained_)
    ++missing_[unit_of_[index]];
}

void Zero3::end_backward() {
  reduce_bucket();
  accumulates_ = !at_boundary_;
  coordinator_->end_backward();
}

/// One sub-group.
std::vector<Trained> Zero3::trained() const {
  const SubGroup& group = sub_groups_[updated_];
  return {{fmt::format("fp32_partition.{}", updated_), part(master_, group),
           offloads() ? part(host_gradient_, group) : whole(gradient_), process_.alike(group.elems),
           -1}};
}

void Zero3::step(Optimizer& optimizer) {
  coordinator_->release_all();
  at_boundary_ = false;
  const std::vector<std::int64_t> largest = process_.alike(largest_shard_);
  for (const SubGroup& group : sub_groups_)
    offloads() ? reduce_host_norm()
               : compute_norm({part(gradient_shards_, group)}, largest, Dtype::Float64);
  for (updated_ = 0; updated_ < sub_groups_.size(); ++updated_) {
    const SubGroup& group = sub_groups_[updated_];
    if (!offloads()) make_gradient(group);
    const std::vector<Trained> updated = trained();
    clip(updated.front().gradient);
    optimizer.step(updated);
    gradient_ = nullptr;
    launch("parameter_shards.from", {part(master_, group)}, {part(shards_, group)});
  }
  coordinator_->gather_persistent();
}

/// _prepare_fp32_grad_for_sub_group: a flat copy, and that in float32.
void Zero3::make_gradient(const SubGroup& group) {
  gradient_ = allocate("flat_gradient", Category::Temporaries, group.elems, accum_dtype_);
  launch("flat_gradient.flatten", {part(gradient_shards_, group)}, {whole(gradient_)});
  if (accum_dtype_ == Dtype::Float32) return;
  const StoragePtr flat = std::exchange(
      gradient_, allocate("fp32_gradient", Category::Temporaries, group.elems, Dtype::Float32));
  launch("fp32_gradient.to", {whole(flat)}, {whole(gradient_)});
}

}  // namespace

std::unique_ptr<Engine> make_zero3(const Process& process) {
  return std::make_unique<Zero3>(process);
}

}  // namespace shardplan::torch
