#include "planner/passes/gradient_path.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/passes/whole_parameters.h"

namespace shardplan {
namespace {

GradientPath::Sum sum_of(const Plan& plan) {
  const GradientAccumulation& accumulation = plan.job.training.gradient_accumulation;
  if (accumulation.steps == 1) return GradientPath::Sum::None;
  const bool every = accumulation.sync == GradientAccumulation::Sync::Every &&
                     plan.job.strategy.sharding != Strategy::Zero1;
  return every && plan.world_size() > 1 ? GradientPath::Sum::Shards : GradientPath::Sum::Whole;
}

}  // namespace

GradientPath::GradientPath(Emitter& emitter, const std::vector<ParameterPlace>& places)
    : emitter_(emitter), places_(places), sum_(sum_of(emitter.plan())) {
  const std::size_t units = plan().units.size();
  gradients_.assign(units, -1);
  sums_.assign(units, -1);
  written_.assign(units, -1);
  for (std::size_t u = 0; u < units; ++u) {
    const Unit& unit = plan().units[u];
    const std::int64_t whole = unit.trainable_elems();
    if (whole == 0) continue;
    gradients_[u] =
        emitter_.buffer(unit.name + ".gradients", Category::Gradients, whole / unit.shards());
    if (sum_ != Sum::Whole) continue;
    const bool final = !sharded() && reduce_dtype() == Dtype::Float32;
    sums_[u] = final ? gradients_[u]
                     : emitter_.buffer(unit.name + ".unsharded_gradients",
                                       Category::UnshardedGradients, whole, reduce_dtype());
  }
}

Dtype GradientPath::written_dtype() const { return parameter_dtype(plan().job); }

Dtype GradientPath::reduce_dtype() const { return shardplan::reduce_dtype(plan().job); }

/// Without a reduction, a sum or a cast in between, kernels write where the optimizer reads.
bool GradientPath::written_is_temporary() const {
  if (sum_ == Sum::Whole) return !adds_up();
  return sharded() || sum_ == Sum::Shards || written_dtype() != Dtype::Float32 ||
         reduce_dtype() != Dtype::Float32;
}

Stream GradientPath::last_stream() const {
  if (!reduces()) return Stream::Compute;
  return sharded() && plan().mesh.replicate == 1 ? Stream::ReduceScatter : Stream::AllReduce;
}

void GradientPath::zero() {
  if (sum_ == Sum::None) return;
  const std::vector<BufferId>& added_to = sum_ == Sum::Shards ? gradients_ : sums_;
  for (std::size_t u = 0; u < added_to.size(); ++u)
    if (added_to[u] >= 0)
      emitter_.emit("zero_gradients." + plan().units[u].name,
                    {Stream::Compute, Phase::Optimizer, static_cast<int>(u)}, Fill{0}, {},
                    {emitter_.whole(added_to[u])});
}

void GradientPath::begin_micro_step(std::vector<int> writes, Reduce reduce) {
  reduce_ = reduce;
  writes_ = std::move(writes);
  writes_left_ = writes_;
  finished_.clear();
  for (std::size_t u = 0; u < written_.size(); ++u) {
    if (gradients_[u] < 0) continue;
    const Unit& unit = plan().units[u];
    if (written_is_temporary())
      written_[u] =
          emitter_.buffer(unit.name + ".unsharded_gradients", Category::UnshardedGradients,
                          unit.trainable_elems(), written_dtype());
    else
      written_[u] = sum_ == Sum::Whole ? sums_[u] : gradients_[u];
  }
}

View GradientPath::gradient_of(int parameter) const {
  const ParameterPlace& place = places_[parameter];
  return {written_[place.unit], place.at, place.elems};
}

void GradientPath::wrote(int unit, InstructionId writer) {
  const bool first = writes_left_[unit] == writes_[unit];
  // Two units' whole gradients at a time: one being written, one being reduced.
  if (first && written_is_temporary() && finished_.size() >= 2)
    emitter_.throttle(writer, finished_[finished_.size() - 2]);
  if (--writes_left_[unit] > 0) return;
  if (written_is_temporary() || sum_ == Sum::None) zero_padding(unit);
  finish(unit);
  finished_.push_back(static_cast<InstructionId>(plan().instructions.size()) - 1);
}

/// All gradients of the unit are there: what happens to them in this micro-step.
void GradientPath::finish(int unit) {
  BufferId whole = written_[unit];
  if (sum_ == Sum::Whole) {
    if (whole != sums_[unit]) add("sum_gradients.", unit, Stream::Compute, whole, sums_[unit]);
    whole = sums_[unit];
    if (reduce_ == Reduce::No) return;
  }
  if (reduces()) {
    if (plan().buffers[whole].dtype != reduce_dtype()) whole = cast(unit, whole);
    whole = reduce(unit, whole);
  }
  deliver(unit, whole);
}

/// The optimizer and the norm run over whole shards: padding must hold zeros.
void GradientPath::zero_padding(int unit) {
  const BufferId gradient = written_[unit];
  std::vector<View> gaps;
  for (const auto& [at, elems] : padding_of(plan().units[unit], plan().buffers[gradient].elems))
    gaps.push_back({gradient, at, elems});
  if (!gaps.empty())
    emitter_.emit("zero_padding." + plan().units[unit].name,
                  {Stream::Compute, Phase::Backward, unit}, Fill{0}, {}, std::move(gaps));
}

/// to += from.
void GradientPath::add(std::string_view name, int unit, Stream stream, BufferId from, BufferId to) {
  emitter_.emit(fmt::format("{}{}", name, plan().units[unit].name), {stream, Phase::Backward, unit},
                Compute{Kernel::Add, {}}, {emitter_.whole(to), emitter_.whole(from)},
                {emitter_.whole(to)});
}

BufferId GradientPath::cast(int unit, BufferId from) {
  const std::string& name = plan().units[unit].name;
  const BufferId to = emitter_.buffer(name + ".cast_gradients", Category::UnshardedGradients,
                                      plan().buffers[from].elems, reduce_dtype());
  emitter_.emit("cast_gradients." + name, {Stream::Compute, Phase::Backward, unit}, Copy{},
                {emitter_.whole(from)}, {emitter_.whole(to)});
  return to;
}

/// Averages `whole` over all ranks; returns what this rank owns of the result.
BufferId GradientPath::reduce(int unit, BufferId whole) {
  const Unit& target = plan().units[unit];
  const auto mean = [&](Group group) { return 1.0 / static_cast<double>(plan().mesh.size(group)); };
  const auto all_reduce = [&](BufferId buffer, Group group) {
    emitter_.emit("all_reduce." + target.name, {Stream::AllReduce, Phase::Backward, unit},
                  AllReduce{group, 1, mean(group), {unit}}, {emitter_.whole(buffer)},
                  {emitter_.whole(buffer)});
    return buffer;
  };
  if (!sharded()) return all_reduce(whole, Group::World);
  const bool in_place = sum_ != Sum::Shards && reduce_dtype() == Dtype::Float32;
  const BufferId shard =
      in_place ? gradients_[unit]
               : emitter_.buffer(target.name + ".reduced_gradients", Category::Gradients,
                                 plan().buffers[gradients_[unit]].elems, reduce_dtype());
  const bool final = plan().mesh.replicate == 1;
  const SliceViews views =
      slice_views(target, shard, whole, target.shards(), target.trainable_elems());
  emitter_.emit("reduce_scatter." + target.name, {Stream::ReduceScatter, Phase::Backward, unit},
                ReduceScatter{Group::Shard, 1, mean(Group::Shard),
                              final ? std::vector{unit} : std::vector<int>{}},
                views.whole, views.shards);
  return final ? shard : all_reduce(shard, Group::Replicate);
}

/// Puts what is reduced where the optimizer reads it.
void GradientPath::deliver(int unit, BufferId reduced) {
  if (sum_ == Sum::Shards)
    add("accumulate_gradients.", unit, last_stream(), reduced, gradients_[unit]);
  else if (reduced != gradients_[unit])
    emitter_.emit("widen_gradients." + plan().units[unit].name,
                  {last_stream(), Phase::Backward, unit}, Copy{}, {emitter_.whole(reduced)},
                  {emitter_.whole(gradients_[unit])});
}

}  // namespace shardplan
