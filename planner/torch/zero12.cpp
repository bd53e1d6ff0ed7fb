#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/torch/deepspeed.h"
#include "planner/torch/optimizer.h"

namespace shardplan::torch {
namespace {

constexpr Bytes kAlignedBytes = 16;  // parameter_alignment

/// DeepSpeedZeroOptimizer (deepspeed/runtime/zero/stage_1_and_2.py): the parameters in one flat
/// buffer on every rank, of which each updates its part. Stage 1 keeps gradients until the last
/// micro-step and reduces them behind its backward; stage 2 reduces bucket by bucket in every
/// backward and keeps those that touch its part.
class Zero12 : public DeepSpeedEngine {
 public:
  explicit Zero12(const Process& process)
      : DeepSpeedEngine(process),
        partitions_gradients_(process.job().strategy.sharding == Strategy::Zero2),
        overlaps_(options().overlap_comm.value_or(false)),
        compact_(grad_accum_dtype(process.job()) == Dtype::Float32 && dtype_ != Dtype::Float32),
        stream_(overlaps_ ? Stream::AllReduce : Stream::Compute),
        layout_(process, options().round_robin_gradients,
                options().parameter_alignment ? kAlignedBytes / size_of(dtype_) : 1) {}

  void init(Optimizer& optimizer) override;
  /// The step lets go of what backward has kept: each needs one of its own.
  bool first_step_differs() const override { return true; }
  void end_backward() override;
  std::vector<Trained> trained() const override;
  void step(Optimizer& optimizer) override;

 private:
  /// IPGBucket: gradients that are reduced together.
  struct Bucket {
    std::vector<int> params;
    std::int64_t elems = 0;
    std::size_t index = 0;  // of the buffer that it fills
  };
  /// What ranks keep of the gradients, by rank class: whole ones of the parameters that touch their
  /// parts, or one flat part in float32.
  using Kept = std::vector<StoragePtr>;

  void on_gradient(Param& param) override;
  void setup_buckets();
  void add_to_bucket(Param& param);
  void reduce_bucket(std::vector<int> final = {});
  void reduce_contiguous(std::vector<int> final);
  void reduce_copies(std::vector<int> final);
  bool is_of_one_rank() const;
  bool is_oversized() const { return bucket_.elems > options().reduce_bucket_size; }
  void keep(int index);
  void keep_in_one_buffer(int index);
  void keep_in_float32(int index);
  void keep_by_itself(int index);
  void offload(int index);
  void make_host_buffers();
  void step_on_host(Optimizer& optimizer);
  void copy_part(const Param& param, const StoragePtr& to);
  void add_kept();
  void make_gradient(const std::vector<View>& gradients);

  /// Offloading takes contiguous gradients for granted.
  bool contiguous() const { return options().contiguous_gradients || offloads(); }
  void reach_boundary() override { at_boundary_ = true; }

  const bool partitions_gradients_;
  const bool overlaps_;
  const bool compact_;  // gradients are accumulated in float32, the parameters are not
  const Stream stream_;
  const FlatPartitions layout_;
  Flat flat_;
  StoragePtr gradient_;              // of the master part, in the step
  std::vector<StoragePtr> buffers_;  // of buckets
  Bucket bucket_;
  Kept kept_;         // of this backward
  Kept accumulated_;  // of those before
  // Of offload_optimizer; the rest of its buffers are on the host.
  struct Offload {
    StoragePtr gradient;     // of the master part
    StoragePtr parameters;   // the updated part in the model's dtype
    StoragePtr accumulated;  // gradients of earlier micro-steps
    StoragePtr on_host;      // of one gradient
    StoragePtr on_device;    // the same, on the device
  } host_buffers_;
  bool at_boundary_ = false;  // the last micro-step
  bool accumulates_ = false;  // an earlier micro-step has left gradients
  Tensors reduced_last_;      // what overlaps lets go of with the next reduction
};

void Zero12::init(Optimizer&) {
  make_params();
  make_frozen_whole();
  flat_ = make_flat(layout_);
  if (offloads()) make_host_buffers();
  kept_.resize(process_.plan().classes.size());
  accumulated_.resize(process_.plan().classes.size());
}

void Zero12::make_host_buffers() {
  const Space space = optimizer_space();
  const auto classes = process_.plan().classes.size();
  std::int64_t largest = 0;
  for (const int index : trained_)
    largest = std::max(largest, params_[index].elems());
  host_buffers_ = {.gradient = resident("fp32_partition.grad", Category::Gradients,
                                        layout_.partition(), Dtype::Float32, space),
                   .parameters = resident("offload.parameters", Category::Parameters,
                                          layout_.partition(), dtype_, space),
                   .on_host = resident("temp_grad_buffer_for_cpu_offload",
                                       Category::CommunicationBuffers, largest, dtype_, space),
                   .on_device = resident("temp_grad_buffer_for_gpu_offload",
                                         Category::CommunicationBuffers, largest, dtype_)};
  if (process_.job().training.gradient_accumulation.steps == 1) return;
  std::vector<std::int64_t> elems;
  for (std::size_t c = 0; c < classes; ++c)
    elems.push_back(layout_.touched(c));
  host_buffers_.accumulated = host_.resident({.name = "accumulated_grads_in_cpu",
                                              .category = Category::Gradients,
                                              .elems = *std::ranges::max_element(elems),
                                              .dtype = dtype_,
                                              .class_elems = elems,
                                              .space = space});
}

void Zero12::setup_buckets() {
  if (!buffers_.empty() || !contiguous()) return;
  for (int i = 0; i < (overlaps_ ? 2 : 1); ++i)
    buffers_.push_back(allocate(fmt::format("ipg_bucket.{}", i), Category::CommunicationBuffers,
                                options().reduce_bucket_size, dtype_));
  bucket_.index = 0;
}

void Zero12::on_gradient(Param& param) {
  setup_buckets();
  if (partitions_gradients_ || (overlaps_ && sync_ == Sync::Yes)) add_to_bucket(param);
}

/// reduce_independent_p_g_buckets_and_remove_grads.
void Zero12::add_to_bucket(Param& param) {
  const std::int64_t most = options().reduce_bucket_size;
  if (bucket_.elems + param.elems() > most) {
    reduce_bucket();
    if (buffers_.size() > 1) bucket_.index = 1 - bucket_.index;
  }
  if (contiguous() && param.elems() <= most) {
    Tensor inside = param.gradient;
    inside.storage = buffers_[bucket_.index];
    inside.at = bucket_.elems;
    launch(param.name + ".grad.to_bucket", {param.gradient.view()}, {inside.view()});
    param.gradient = std::move(inside);
  }
  bucket_.elems += param.elems();
  bucket_.params.push_back(static_cast<int>(&param - params_.data()));
}

/// Slices of one rank are joined; a single slice is reduced where it is.
bool Zero12::is_of_one_rank() const {
  const auto [first, last] = layout_.ranks_of(bucket_.params.front());
  return std::ranges::all_of(bucket_.params,
                             [&, owner = first](int index) {
                               return layout_.ranks_of(index) == std::pair(owner, owner);
                             }) &&
         first == last;
}

/// average_tensor.
void Zero12::reduce_contiguous(std::vector<int> final) {
  const View bucket = is_oversized() ? params_[bucket_.params.front()].gradient.view()
                                     : View{buffers_[bucket_.index]->buffer(), 0, bucket_.elems};
  if (!options().reduce_scatter || (is_of_one_rank() && !compact_))
    return all_reduce_in_comm_dtype("all_reduce.bucket", bucket, std::move(final), stream_);
  const StoragePtr flat =
      allocate("ipg_bucket.flat", Category::CommunicationBuffers, bucket_.elems, dtype_, stream_);
  launch("ipg_bucket.flatten", {bucket}, {whole(flat)}, stream_);
  all_reduce_in_comm_dtype("all_reduce.bucket", whole(flat), std::move(final), stream_);
  launch("ipg_bucket.unflatten", {whole(flat)}, {bucket}, stream_);
}

/// buffered_reduce_fallback.
void Zero12::reduce_copies(std::vector<int> final) {
  reduced_last_.clear();
  std::vector<View> gradients;
  for (const int index : bucket_.params)
    gradients.push_back(params_[index].gradient.view());
  if (gradients.size() == 1)
    return all_reduce_in_comm_dtype("all_reduce.bucket", gradients[0], std::move(final), stream_);
  const StoragePtr flat =
      allocate("ipg_bucket.flat", Category::CommunicationBuffers, bucket_.elems, dtype_, stream_);
  launch("ipg_bucket.flatten", gradients, {whole(flat)}, stream_);
  all_reduce_in_comm_dtype("all_reduce.bucket", whole(flat), std::move(final), stream_);
  launch("ipg_bucket.unflatten", {whole(flat)}, gradients, stream_);
}

/// reduce_ipg_grads.
void Zero12::reduce_bucket(std::vector<int> final) {
  if (bucket_.params.empty()) return;
  const UnitScope scope(host_, 0);
  contiguous() ? reduce_contiguous(std::move(final)) : reduce_copies(std::move(final));
  for (const int index : bucket_.params) {
    if (contiguous() || partitions_gradients_ || compact_) keep(index);
    if (!partitions_gradients_) continue;  // until the end of backward
    if (overlaps_ && !contiguous()) reduced_last_.push_back(params_[index].gradient);
    params_[index].gradient = {};
  }
  bucket_ = {.params = {}, .elems = 0, .index = bucket_.index};
}

/// Ranks whose parts a parameter touches keep its gradient.
void Zero12::keep(int index) {
  if (offloads())
    offload(index);
  else if (compact_)
    keep_in_float32(index);
  else if (contiguous())
    keep_in_one_buffer(index);
  else
    keep_by_itself(index);
}

/// copy_grads_in_partition: into a buffer for all that a rank keeps, made with the first of them.
void Zero12::keep_in_one_buffer(int index) {
  const auto classes = process_.plan().classes.size();
  StoragePtr made;
  for (std::size_t c = 0; c < classes; ++c) {
    if (!layout_.touches(index, c)) continue;
    if (!kept_[c]) {
      std::vector<std::int64_t> elems(classes, 0);
      elems[c] = layout_.touched(c);
      kept_[c] = host_.allocate({.name = "partition_gradients",
                                 .category = Category::Gradients,
                                 .elems = elems[c],
                                 .dtype = dtype_,
                                 .class_elems = elems});
    }
    made = kept_[c];
  }
  if (made) copy_part(params_[index], made);
}

/// copy_grads_in_partition: earlier micro-steps are added up on the device and go back to the host;
/// at the last its norm is taken, and it goes there in float32.
void Zero12::offload(int index) {
  const Param& param = params_[index];
  const std::int64_t part = std::min(ceil_div(param.elems(), world_), layout_.partition());
  const View gradient{param.gradient.storage->buffer(), param.gradient.at, part};
  if (host_buffers_.accumulated) {
    const View sum{host_buffers_.accumulated->buffer(), 0, part};
    const View before{host_buffers_.on_device->buffer(), 0, part};
    if (accumulates_) {
      launch(param.name + ".grad.fetch", {sum}, {before});
      add(param.name + ".grad.accumulate", gradient, before);
    }
    launch(param.name + ".grad.offload", {gradient}, {sum});
  }
  if (!at_boundary_) return;
  {
    const StoragePtr copy = allocate("grad_norm.copy", Category::Temporaries,
                                     std::min(param.elems(), layout_.partition()), Dtype::Float64);
    launch(param.name + ".grad.norm", {gradient}, {{copy->buffer(), 0, part}});
  }
  const StoragePtr wide = allocate(param.name + ".grad.fp32", Category::Temporaries,
                                   std::min(param.elems(), layout_.partition()), Dtype::Float32);
  const View made{wide->buffer(), 0, part};
  launch(param.name + ".grad.to", {gradient}, {made});
  launch(param.name + ".grad.offload_fp32", {made}, {{host_buffers_.gradient->buffer(), 0, part}});
}

/// Float32 gradients of a rank's part only, to which each micro-step adds.
void Zero12::keep_in_float32(int index) {
  StoragePtr& kept = accumulated_.front();
  if (!kept)
    kept =
        allocate("partition_gradients", Category::Gradients, layout_.partition(), Dtype::Float32);
  copy_part(params_[index], kept);
}

/// Every rank copies its part of a gradient: one of as many parts as there are ranks stands for
/// that.
void Zero12::copy_part(const Param& param, const StoragePtr& to) {
  const std::int64_t part = std::min(ceil_div(param.elems(), world_), layout_.partition());
  launch(param.name + ".grad.keep", {{param.gradient.storage->buffer(), param.gradient.at, part}},
         {{to->buffer(), 0, part}});
}

/// The gradient itself stays, on the ranks whose parts it touches.
void Zero12::keep_by_itself(int index) {
  const auto classes = process_.plan().classes.size();
  std::vector<std::int64_t> elems(classes, 0);
  for (std::size_t c = 0; c < classes; ++c)
    if (layout_.touches(index, c)) elems[c] = params_[index].elems();
  params_[index].gradient = {};
  kept_.push_back(host_.allocate({.name = params_[index].name + ".grad.kept",
                                  .category = Category::Gradients,
                                  .elems = params_[index].elems(),
                                  .dtype = dtype_,
                                  .class_elems = elems}));
}

/// reduce_gradients and independent_gradient_partition_epilogue.
void Zero12::end_backward() {
  if (!partitions_gradients_ && sync_ == Sync::No) return;
  if (!partitions_gradients_ && !overlaps_)
    for (const int index : trained_)
      add_to_bucket(params_[index]);
  reduce_bucket({0});
  if (!partitions_gradients_ && !contiguous())
    for (const int index : trained_)
      keep(index);
  reduced_last_.clear();
  buffers_.clear();
  drop_gradients();
  accumulates_ = !at_boundary_;
  add_kept();
}

/// Gradients of later micro-steps are added to those of the first.
void Zero12::add_kept() {
  accumulated_.resize(std::max(accumulated_.size(), kept_.size()));
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    if (!accumulated_[i])
      accumulated_[i] = std::move(kept_[i]);
    else if (kept_[i])
      add("partition_gradients.add", whole(accumulated_[i]), whole(kept_[i]));
  }
  kept_.assign(process_.plan().classes.size(), nullptr);
}

std::vector<Trained> Zero12::trained() const {
  return {{"fp32_partition", whole(flat_.master),
           whole(offloads() ? host_buffers_.gradient : gradient_),
           process_.alike(layout_.partition()), 0}};
}

/// The host updates its part, and that goes to the device.
void Zero12::step_on_host(Optimizer& optimizer) {
  if (dtype_ != Dtype::Float32) {
    const StoragePtr overflow = allocate("overflow", Category::Temporaries, 1, Dtype::UInt8);
    launch("overflow.to", {}, {whole(overflow)});
    all_reduce("all_reduce.overflow", whole(overflow));
  }
  reduce_host_norm();
  clip(whole(host_buffers_.gradient));
  optimizer.step(trained());
  launch("offload.parameters.from", {whole(flat_.master)}, {whole(host_buffers_.parameters)},
         Stream::Host);
  update_flat({flat_.parameters, host_buffers_.parameters});
}

void Zero12::step(Optimizer& optimizer) {
  const UnitScope scope(host_, 0);
  at_boundary_ = false;
  if (offloads()) return step_on_host(optimizer);
  std::vector<View> gradients;
  for (const StoragePtr& kept : accumulated_)
    if (kept) gradients.push_back(whole(kept));
  if (dtype_ != Dtype::Float32) {  // bf16.check_grad_overflow
    const StoragePtr overflow = allocate("overflow", Category::Temporaries, 1, Dtype::UInt8);
    launch("overflow", gradients, {whole(overflow)});
    all_reduce("all_reduce.overflow", whole(overflow));
  }
  std::vector<std::int64_t> pieces;
  for (std::size_t c = 0; c < process_.plan().classes.size(); ++c)
    pieces.push_back(layout_.largest_piece(c));
  compute_norm(gradients, std::move(pieces), Dtype::Float32);
  make_gradient(gradients);
  accumulated_.assign(accumulated_.size(), nullptr);
  clip(whole(gradient_));
  optimizer.step(trained());
  gradient_ = nullptr;
  update_flat(flat_);
}

/// The gradient of the float32 part: what was kept in it, or a flat copy in the model's dtype (none
/// of a single piece), and that in float32.
void Zero12::make_gradient(const std::vector<View>& gradients) {
  if (compact_) {
    gradient_ = accumulated_.front();
    return;
  }
  const std::int64_t part = std::min(layout_.partition(), gradients.front().elems);
  std::vector<std::int64_t> elems;
  for (std::size_t c = 0; c < process_.plan().classes.size(); ++c)
    elems.push_back(layout_.is_one_piece(c) && dtype_ != Dtype::Float32 ? 0 : layout_.partition());
  const StoragePtr flat = host_.allocate({.name = "flat_gradient",
                                          .category = Category::Temporaries,
                                          .elems = layout_.partition(),
                                          .dtype = dtype_,
                                          .class_elems = elems});
  launch("flat_gradient.flatten", {{gradients.front().buffer, 0, part}},
         {{flat->buffer(), 0, part}});
  gradient_ = flat;
  if (dtype_ == Dtype::Float32) return;
  gradient_ = allocate("fp32_gradient", Category::Temporaries, layout_.partition(), Dtype::Float32);
  launch("fp32_gradient.to", {whole(flat)}, {whole(gradient_)});
}

}  // namespace

std::unique_ptr<Engine> make_zero12(const Process& process) {
  return std::make_unique<Zero12>(process);
}

}  // namespace shardplan::torch
