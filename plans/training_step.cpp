#include "plans/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shardplan {
namespace {

constexpr unsigned kShardAxis = 1;
constexpr unsigned kReplicateAxis = 2;

unsigned axes_of(Group group) {
  switch (group) {
    case Group::World: return kShardAxis | kReplicateAxis;
    case Group::Shard: return kShardAxis;
    case Group::Replicate: return kReplicateAxis;
    case Group::Span: return 0;
  }
  return 0;
}

/// Elements [begin, end) of what the slices make up together.
std::vector<Slice> cut(const std::vector<Slice>& slices, std::int64_t begin, std::int64_t end) {
  std::vector<Slice> result;
  std::int64_t at = 0;
  for (const Slice& slice : slices) {
    const std::int64_t from = std::max(begin, at);
    const std::int64_t to = std::min(end, at + slice.elems);
    const std::int64_t skipped = slice.value == Values::kZero ? 0 : from - at;
    if (from < to) result.push_back({slice.value, slice.at + skipped, to - from});
    at += slice.elems;
  }
  return result;
}

bool before(const Slice& a, const Slice& b) {
  return a.value != b.value ? a.value < b.value : a.at < b.at;
}

}  // namespace

TrainingStep::TrainingStep(Contents& contents, Differentiation& differentiation)
    : contents_(contents), values_(contents.values()), differentiation_(differentiation) {
  needed_axes_ =
      (plan().mesh.shard > 1 ? kShardAxis : 0) | (plan().mesh.replicate > 1 ? kReplicateAxis : 0);
  for (std::size_t u = 0; u < plan().units.size(); ++u) {
    const Unit& unit = plan().units[u];
    std::vector<Stretch>& stretches = stretches_.emplace_back();
    for (const UnitSlice& slice : unit.slices) {
      const auto index = static_cast<int>(stretches.size());
      const ValueId whole = values_.weights(static_cast<int>(u), index, slice.elems);
      stretches.push_back(
          {slice.at / unit.shards(), slice.elems / unit.shards(), slice.trainable, whole, whole});
    }
  }
}

void TrainingStep::begin() {
  for (auto& unit : stretches_)
    for (Stretch& stretch : unit)
      stretch.updates = 0;
  losses_ = {};
  tokens_read_ = targets_read_ = losses_written_ = 0;
  inputs_read_.clear();
  norms_.clear();
  norm_values_.clear();
  norms_written_.clear();
}

void TrainingStep::end() {
  for (std::size_t u = 0; u < stretches_.size(); ++u)
    for (const Stretch& stretch : stretches_[u])
      if (const int expected = stretch.trainable ? 1 : 0; stretch.updates != expected)
        contents_.fault(
            -1, plan().units[u].parameter,
            fmt::format("is updated {} times in a step from element {} on, not {} times",
                        stretch.updates, stretch.at, expected));
  if (losses_written_ != 1)
    contents_.fault(-1, -1, fmt::format("a step reports {} losses, not one", losses_written_));
  if (norms_written_.size() != 1)
    contents_.fault(
        -1, -1, fmt::format("a step reports {} gradient norms, not one", norms_written_.size()));
  for (const std::size_t norm : norms_written_)
    if (norms_[norm].used != norms_[norm].elems)
      contents_.fault(-1, -1, "the norm that is reported is not of what the step updates by");
}

void TrainingStep::end_program() {
  int most = 0;
  for (const auto& unit : stretches_)
    for (const Stretch& stretch : unit)
      most = std::max(most, stretch.saves);
  for (std::size_t u = 0; u < stretches_.size(); ++u)
    for (const Stretch& stretch : stretches_[u])
      if (most > 0 && stretch.saves != 1)
        contents_.fault(-1, plan().units[u].parameter,
                        fmt::format("is saved {} times, not once", stretch.saves));
}

ValueId TrainingStep::owned(ValueId whole, std::int64_t elems) const {
  return plan().mesh.shard > 1 ? values_.part(whole, Group::Shard, elems) : whole;
}

/// What a view of a unit's resident weights holds when all is right.
std::vector<Slice> TrainingStep::weights(int unit, const View& view, Weights which) const {
  std::vector<Slice> slices;
  for (const Stretch& stretch : stretches_[unit]) {
    const std::int64_t from = std::max(view.at, stretch.at);
    const std::int64_t to = std::min(view.at + view.elems, stretch.at + stretch.elems);
    const ValueId whole = which == Weights::Initial ? stretch.initial : stretch.latest;
    if (from < to) slices.push_back({owned(whole, stretch.elems), from - stretch.at, to - from});
  }
  return slices;
}

void TrainingStep::read(InstructionId id, Source source) {
  const Instruction& instruction = contents_.at(id);
  if (source == Source::Weights)
    return contents_.write(id, 0,
                           weights(instruction.unit, instruction.writes[0], Weights::Initial));
  int& batches = source == Source::Tokens    ? tokens_read_
                 : source == Source::Targets ? targets_read_
                                             : inputs_read_[id];
  contents_.write(id, 0, values_.opaque(instruction.writes[0].elems, batches++));
}

void TrainingStep::write(InstructionId id, Sink sink) {
  const Instruction& instruction = contents_.at(id);
  const View& view = instruction.reads[0];
  const std::vector<Slice> slices = contents_.read(id, 0);
  const Value& value = values_.at(slices[0].value);
  switch (sink) {
    case Sink::Loss:
      ++losses_written_;
      if (value.kind != Value::Kind::Gradient || value.terms != losses_ ||
          static_cast<unsigned>(value.second) != needed_axes_)
        fault(id, view, "is not the loss of the step, averaged over all ranks");
      return;
    case Sink::GradientNorm:
      if (const Norm* norm = norm_of(id, 0, Stage::Norm))
        norms_written_.push_back(static_cast<std::size_t>(norm - norms_.data()));
      else
        fault(id, view, "is not the norm of this step's gradients");
      return;
    case Sink::Weights:
      if (slices != weights(instruction.unit, view, Weights::Latest))
        fault(id, view, "does not hold the latest weights");
      for (Stretch& stretch : stretches_[instruction.unit])
        if (view.at <= stretch.at && stretch.at + stretch.elems <= view.at + view.elems)
          ++stretch.saves;
      return;
  }
}

void TrainingStep::reduce_scatter(InstructionId id, const ReduceScatter& reduce) {
  for (std::size_t i = 0; i < contents_.at(id).reads.size(); ++i) {
    const auto slices = reduced(id, i, reduce);
    if (slices)
      contents_.write_part(id, i, *slices, reduce.group);
    else
      contents_.write_unknown(id, i);
  }
}

void TrainingStep::all_reduce(InstructionId id, const AllReduce& reduce) {
  if (const Norm* norm = norm_of(id, 0, Stage::Sum)) {
    const bool sums = reduce.group == Group::Shard && reduce.pre_scale * reduce.post_scale == 1;
    if (!sums || norm->summed || !norm->parted)
      fault(id, contents_.at(id).reads[0], "is not summed once over the ranks that own its parts");
    Norm total = *norm;
    total.summed = true;
    norms_.push_back(std::move(total));
    return contents_.write(id, 0, new_norm_value(norms_.size() - 1, Stage::Sum));
  }
  const auto slices = reduced(id, 0, reduce);
  if (slices)
    contents_.write(id, 0, *slices);
  else
    contents_.write_unknown(id, 0);
}

/// The i-th operand, averaged over a group; empty when it is no gradient.
template <typename Reduction>
std::optional<std::vector<Slice>> TrainingStep::reduced(InstructionId id, std::size_t i,
                                                        const Reduction& reduce) {
  const View& view = contents_.at(id).reads[i];
  const std::vector<Slice> slices = contents_.read(id, i);
  if (!differentiation_.is_gradient(slices)) return std::nullopt;
  const double scale = reduce.pre_scale * reduce.post_scale;
  if (std::abs(scale * static_cast<double>(plan().mesh.size(reduce.group)) - 1) > 1e-9)
    fault(id, view, "is not averaged: the scales do not divide by the ranks");
  if (reduce.group == Group::Span) fault(id, view, "is reduced over a part of the ranks");
  std::vector<Slice> result;
  for (const Slice& slice : slices)
    result.push_back(averaged(id, view, slice, axes_of(reduce.group) & needed_axes_));
  if (reduce.contributes != finished_units(result))
    fault(id, view, "is not what the instruction says that it makes final");
  return result;
}

Slice TrainingStep::averaged(InstructionId id, const View& view, const Slice& slice,
                             unsigned axes) {
  const Value value = values_.at(slice.value);
  if (value.kind == Value::Kind::Zero) return slice;
  if (value.kind == Value::Kind::Gradient) {
    const auto before = static_cast<unsigned>(value.second);
    if ((before & axes) != 0) fault(id, view, "is reduced a second time over the same ranks");
    return {values_.gradient(value.first, value.terms, before | axes), slice.at, slice.elems};
  }
  if (value.kind != Value::Kind::Part || (axes_of(static_cast<Group>(value.second)) & axes) != 0) {
    fault(id, view, "is reduced over ranks that hold different things");
    return slice;
  }
  std::vector<Slice> whole;
  for (const Slice& inner : values_.resolved(value.first))
    whole.push_back(averaged(id, view, inner, axes));
  return {values_.part(values_.row(whole), static_cast<Group>(value.second), value.elems), slice.at,
          slice.elems};
}

/// The units of whose parameters these gradients are, once they are averaged over all ranks.
std::vector<int> TrainingStep::finished_units(const std::vector<Slice>& slices) const {
  std::vector<int> units;
  for (const Slice& slice : slices) {
    const Value& value = values_.at(slice.value);
    if (value.kind == Value::Kind::Part) {
      const std::vector<int> inner = finished_units(values_.resolved(value.first));
      units.insert(units.end(), inner.begin(), inner.end());
    }
    if (value.kind == Value::Kind::Gradient &&
        static_cast<unsigned>(value.second) == needed_axes_ &&
        values_.at(value.first).kind == Value::Kind::Weights)
      units.push_back(values_.at(value.first).first);
  }
  std::ranges::sort(units);
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

void TrainingStep::sum_squares(InstructionId id) {
  Norm norm;
  for (std::size_t i = 0; i < contents_.at(id).reads.size(); ++i)
    for (const Slice& slice : contents_.read(id, i)) {
      if (slice.value == Values::kZero) continue;
      norm.parted |= values_.at(slice.value).kind == Value::Kind::Part;
      norm.elems += slice.elems;
      norm.slices.push_back(slice);
    }
  std::ranges::sort(norm.slices, before);
  for (std::size_t i = 1; i < norm.slices.size(); ++i)
    if (norm.slices[i].value == norm.slices[i - 1].value &&
        norm.slices[i].at < norm.slices[i - 1].at + norm.slices[i - 1].elems)
      fault(id, contents_.at(id).writes[0], "counts a gradient twice");
  norms_.push_back(std::move(norm));
  contents_.write(id, 0, new_norm_value(norms_.size() - 1, Stage::Sum));
}

ValueId TrainingStep::new_norm_value(std::size_t norm, Stage stage) {
  const ValueId value = values_.opaque(1);
  norm_values_[value] = {norm, stage};
  return value;
}

TrainingStep::Norm* TrainingStep::norm_of(InstructionId id, std::size_t i, Stage stage) {
  const auto found = norm_values_.find(contents_.read(id, i)[0].value);
  const bool matches = found != norm_values_.end() && found->second.stage == stage;
  return matches ? &norms_[found->second.norm] : nullptr;
}

void TrainingStep::gradient_norm(InstructionId id) {
  const Norm* norm = norm_of(id, 0, Stage::Sum);
  if (!norm || norm->parted != norm->summed) {
    fault(id, contents_.at(id).reads[0],
          "is not a sum of squares over all ranks that own parts of the gradients");
    return contents_.write_unknown(id);
  }
  const auto index = static_cast<std::size_t>(norm - norms_.data());
  contents_.write(id, 0, new_norm_value(index, Stage::Norm));
  contents_.write(id, 1, new_norm_value(index, Stage::Factor));
}

void TrainingStep::update(InstructionId id) {
  const Instruction& instruction = contents_.at(id);
  const View& updated = instruction.writes[0];
  const int unit = instruction.unit;
  if (unit < 0 || updated.buffer != plan().units[unit].parameter) {
    contents_.fault(id, -1, "does not update the parameters of its unit");
    return contents_.write_unknown(id);
  }
  if (contents_.read(id, 2) != weights(unit, updated, Weights::Latest))
    fault(id, updated, "does not hold the latest weights");
  const std::vector<Slice> gradient = contents_.read(id, 0);
  check_states(id);
  check_clipping(id, gradient);
  for (std::size_t s = 0; s < stretches_[unit].size(); ++s) {
    Stretch& stretch = stretches_[unit][s];
    const std::int64_t begin = stretch.at - updated.at;
    const std::int64_t end = begin + stretch.elems;
    if (end <= 0 || begin >= updated.elems) continue;
    if (begin < 0 || end > updated.elems) {
      fault(id, updated, "is updated in part");
      continue;
    }
    check_gradient(id, stretch, cut(gradient, begin, end));
    stretch.latest = values_.weights(unit, static_cast<int>(s), values_.at(stretch.latest).elems);
    ++stretch.updates;
  }
  contents_.write(id, 0, weights(unit, updated, Weights::Latest));
}

/// `gradient` is that of all of the stretch that a rank owns.
void TrainingStep::check_gradient(InstructionId id, const Stretch& stretch,
                                  const std::vector<Slice>& gradient) {
  const View& view = contents_.at(id).reads[0];
  std::vector<Slice> whole = gradient;
  if (plan().mesh.shard > 1) {
    const Value& part = values_.at(gradient[0].value);
    if (gradient[0].value == Values::kZero) return fault(id, view, "is no gradient, but zeros");
    if (gradient.size() != 1 || gradient[0].at != 0 || part.elems != gradient[0].elems ||
        part.kind != Value::Kind::Part || static_cast<Group>(part.second) != Group::Shard)
      return fault(id, view, "is used before it is reduced over all ranks");
    whole = values_.resolved(part.first);
  }
  std::int64_t at = 0;
  for (const Slice& slice : whole) {
    const Value& value = values_.at(slice.value);
    const bool zero = value.kind == Value::Kind::Zero;
    if (!zero && value.kind != Value::Kind::Gradient) return fault(id, view, "is no gradient");
    if (!zero && static_cast<unsigned>(value.second) != needed_axes_)
      return fault(id, view, "is used before it is reduced over all ranks");
    const auto expected = values_.expected({stretch.latest, at, slice.elems});
    if ((!zero && slice.at != at) || expected != (zero ? Terms{} : value.terms))
      return fault(id, view, "does not sum one term of every use of its parameters in this step");
    at += slice.elems;
  }
}

/// States begin as zeros and stay with their parameters.
void TrainingStep::check_states(InstructionId id) {
  const Instruction& instruction = contents_.at(id);
  const View& updated = instruction.writes[0];
  for (std::size_t state = 1; state < instruction.writes.size(); ++state) {
    const ValueId own = values_.state(instruction.unit, static_cast<int>(state),
                                      plan().units[instruction.unit].shard_elems);
    std::int64_t at = updated.at;
    for (const Slice& slice : contents_.read(id, state + 2)) {
      if (slice.value != Values::kZero && (slice.value != own || slice.at != at))
        fault(id, instruction.writes[state], "is not the state of these parameters");
      at += slice.elems;
    }
    contents_.write(id, state, {{own, updated.at, updated.elems}});
  }
}

/// The factor on the gradient comes from a norm that counts it.
void TrainingStep::check_clipping(InstructionId id, const std::vector<Slice>& gradient) {
  const View& factor = contents_.at(id).reads[1];
  Norm* norm = norm_of(id, 1, Stage::Factor);
  if (!norm) return fault(id, factor, "is not made from the norm of this step's gradients");
  for (const Slice& slice : gradient) {
    if (slice.value == Values::kZero) continue;
    const auto after = std::ranges::upper_bound(norm->slices, slice, before);
    const bool counted = after != norm->slices.begin() && std::prev(after)->value == slice.value &&
                         slice.at + slice.elems <= std::prev(after)->at + std::prev(after)->elems;
    if (!counted) return fault(id, factor, "is made from a norm that lacks this gradient");
    norm->used += slice.elems;
  }
}

}  // namespace shardplan
