#include "planner/passes/whole_parameters.h"

#include <fmt/format.h>

#include "plans/error.h"

namespace shardplan {

Dtype parameter_dtype(const Job& job) {
  return job.strategy.mixed_precision ? job.strategy.mixed_precision->param : Dtype::Float32;
}

Dtype reduce_dtype(const Job& job) {
  return job.strategy.mixed_precision ? job.strategy.mixed_precision->reduce : job.model.dtype;
}

SliceViews slice_views(const Unit& unit, BufferId shards, BufferId whole, std::int64_t parts,
                       std::int64_t elems) {
  SliceViews views;
  for (const UnitSlice& slice : unit.slices) {
    if (slice.at >= elems) break;
    views.shards.push_back({shards, slice.at / parts, slice.elems / parts});
    views.whole.push_back({whole, slice.at, slice.elems});
  }
  return views;
}

WholeParameters::WholeParameters(Emitter& emitter, const Tape& tape,
                                 const std::vector<ParameterPlace>& places)
    : emitter_(emitter) {
  if (plan().mesh.shard > 1 || parameter_dtype(plan().job) != Dtype::Float32)
    gathers_ = plan_gathers(plan(), tape, places);
}

bool WholeParameters::gathers_once() const {
  const Strategy sharding = plan().job.strategy.sharding;
  return plan().mesh.shard > 1 && (sharding == Strategy::Zero1 || sharding == Strategy::Zero2);
}

void WholeParameters::gather_for_step() {
  for (const Gather& gather : gathers_) {
    const std::string& name = plan().units[gather.unit].name;
    gathered_.push_back(gathered(gather, name, source(gather, name), Group::Shard));
  }
  next_ = gathers_.size();
}

void WholeParameters::begin_micro_step() {
  if (gathers_once()) return;
  next_ = 0;
  gathered_.assign(gathers_.size(), -1);
  spans_.assign(plan().units.size(), -1);
}

void WholeParameters::before_launch(int launch, const std::vector<InstructionId>& launch_ids) {
  while (next_ < gathers_.size() && gathers_[next_].issue <= launch)
    emit_gather(next_++, launch_ids);
}

/// What is gathered: the shard, in the dtype that is computed in.
BufferId WholeParameters::source(const Gather& gather, const std::string& suffix) {
  const Unit& unit = plan().units[gather.unit];
  const Dtype dtype = parameter_dtype(plan().job);
  if (dtype == Dtype::Float32) return unit.parameter;
  const bool sharded = plan().mesh.shard > 1;
  const BufferId cast =
      emitter_.buffer(suffix + (sharded ? ".cast_shard" : ".cast_parameters"),
                      sharded ? Category::CommunicationBuffers : Category::UnshardedParameters,
                      unit.shard_elems, dtype);
  emitter_.emit("cast." + suffix,
                {sharded ? Stream::AllGather : Stream::Compute, gather.phase, gather.unit}, Copy{},
                {emitter_.whole(unit.parameter)}, {emitter_.whole(cast)});
  return cast;
}

/// Gathers the unit `from` what each rank of the group has.
BufferId WholeParameters::gathered(const Gather& gather, const std::string& suffix, BufferId from,
                                   Group group) {
  const Unit& unit = plan().units[gather.unit];
  const BufferId whole =
      emitter_.buffer(suffix + ".unsharded_parameters", Category::UnshardedParameters,
                      unit.padded_elems, parameter_dtype(plan().job));
  const SliceViews views =
      slice_views(unit, from, whole, plan().mesh.size(group), unit.padded_elems);
  emitter_.emit("all_gather." + suffix, {Stream::AllGather, gather.phase, gather.unit},
                AllGather{group}, views.shards, views.whole);
  return whole;
}

void WholeParameters::emit_gather(std::size_t index, const std::vector<InstructionId>& launch_ids) {
  const Gather& gather = gathers_[index];
  const Unit& unit = plan().units[gather.unit];
  const std::string suffix = fmt::format("{}.{}", unit.name, to_string(gather.phase));
  const auto first = static_cast<InstructionId>(plan().instructions.size());
  const BufferId kept = spans_[gather.unit];
  const BufferId from = kept >= 0 ? kept : source(gather, suffix);
  gathered_[index] = plan().mesh.shard == 1
                         ? from
                         : gathered(gather, suffix, from, kept >= 0 ? Group::Span : Group::Shard);
  if (gather.throttle >= 0) emitter_.throttle(first, launch_ids[gather.throttle]);
}

void WholeParameters::after_launch(int launch) {
  if (plan().mesh.span == 1) return;
  for (std::size_t g = 0; g < next_; ++g)
    if (gathers_[g].last_use == launch && gathers_[g].phase == Phase::Forward &&
        !keeps_parameters(plan(), gathers_[g].unit))
      keep_span(gathers_[g], gathered_[g]);
}

/// Each rank keeps its part of what the neighbours of its span hold together.
void WholeParameters::keep_span(const Gather& gather, BufferId whole) {
  const Unit& unit = plan().units[gather.unit];
  const BufferId kept =
      emitter_.buffer(unit.name + ".resharded_parameters", Category::UnshardedParameters,
                      unit.padded_elems / plan().mesh.span, parameter_dtype(plan().job));
  const SliceViews views = slice_views(unit, kept, whole, plan().mesh.span, unit.padded_elems);
  emitter_.emit("reshard." + unit.name, {Stream::Compute, Phase::Forward, gather.unit},
                Copy{Group::Span}, views.whole, views.shards);
  spans_[gather.unit] = kept;
}

View WholeParameters::view(const ParameterPlace& place, int launch) const {
  if (gathers_.empty()) return {plan().units[place.unit].parameter, place.at, place.elems};
  for (std::size_t g = 0; g < next_; ++g)
    if (gathers_[g].unit == place.unit && gathers_[g].first_use <= launch &&
        launch <= gathers_[g].last_use)
      return {gathered_[g], place.at, place.elems};
  check(false, "a launch reads parameters that are gathered for it");
  return {};
}

}  // namespace shardplan
