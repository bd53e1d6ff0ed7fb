#include "planner/torch/zero3_parameters.h"

#include <algorithm>

namespace shardplan::torch {

using Status = PartitionedParameter::Status;

ParameterCoordinator::ParameterCoordinator(const Process& process,
                                           std::vector<PartitionedModule> modules,
                                           std::vector<PartitionedParameter> parameters)
    : process_(process),
      host_(process.host),
      world_(process.plan().world_size()),
      stream_(options().overlap_comm.value_or(true) ? Stream::AllGather : Stream::Compute),
      modules_(std::move(modules)),
      parameters_(std::move(parameters)) {}

/// The first forward shows nothing to go by; it is recorded, with its backward.
void ParameterCoordinator::begin_forward() {
  for (const auto& [index, gather] : std::map(in_flight_)) {
    wait(index);
    release_parameter(index);
  }
  in_flight_.clear();
  if (trace_ == Trace::Record) trace_ = Trace::Complete;
  if (trace_ == Trace::Invalid) trace_ = Trace::Record;
  queue_.clear();
  for (std::size_t step = 0; knows_order() && step < module_order_.size(); ++step)
    for (const int index : modules_[module_order_[step]].parameters)
      queue_.emplace_back(index, static_cast<int>(step));
  fetched_until_.clear();
  step_ = 0;
  available_elems_ = 0;
}

void ParameterCoordinator::fetch(int module, Phase phase) {
  const UnitScope scope(host_, modules_[module].unit);
  if (!knows_order()) module_order_.push_back(module);
  if (phase == Phase::Backward &&
      std::ranges::find(active_backward_, module) == active_backward_.end())
    active_backward_.push_back(module);
  const std::vector<int>& needed = modules_[module].parameters;
  gather({needed.begin(), needed.end()});
  for (const int index : needed) {
    PartitionedParameter& parameter = parameters_[index];
    parameter.users.insert(module);
    const bool recomputes = phase == Phase::Forward && process_.aten.recomputes();
    if (recomputes && !active_backward_.empty() && !parameter.tensor.requires_grad)
      recomputed_[active_backward_.back()].insert(index);
    if (!in_flight_.contains(index)) continue;
    limit_fetches();
    wait(index);
    in_flight_.erase(index);
    if (!is_resident(parameter)) fetches_.push_back(host_.latest(stream_));
  }
  if (knows_order()) prefetch(needed);
  ++step_;
}

/// __max_ongoing_fetch_events: the host waits where more gathers are under way.
void ParameterCoordinator::limit_fetches() {
  constexpr std::size_t kMost = 2;
  if (fetches_.size() <= kMost) return;
  host_.wait_for("fetch_events", fetches_.front());
  fetches_.pop_front();
}

void ParameterCoordinator::prefetch(const std::vector<int>& fetched) {
  Set missing;
  for (const int index : fetched) {
    const auto until = fetched_until_.find(index);
    if (until == fetched_until_.end() || until->second < step_) missing.insert(index);
  }
  for (std::size_t taken = 0; !queue_.empty() && taken < missing.size(); ++taken) {
    fetched_until_[queue_.front().first] = queue_.front().second;
    queue_.pop_front();
  }
  const std::int64_t most =
      std::min(options().max_live_parameters - available_elems_, options().prefetch_bucket_size);
  Set ahead;
  std::int64_t elems = 0;
  while (options().prefetch_bucket_size > 0 && !queue_.empty() && elems < most) {
    const auto [index, step] = queue_.front();
    queue_.pop_front();
    int& until = fetched_until_.try_emplace(index, step).first->second;
    until = std::max(until, step);
    if (parameters_[index].status == Status::NotAvailable && ahead.insert(index).second)
      elems += tensor(index).elems;
  }
  gather(ahead);
}

void ParameterCoordinator::gather(const Set& wanted) {
  auto gather = std::make_shared<Gather>();
  for (const int index : wanted)
    if (parameters_[index].status == Status::NotAvailable) gather->parameters.push_back(index);
  for (const int index : gather->parameters) {
    available_elems_ += tensor(index).elems;
    parameters_[index].status = Status::InFlight;
  }
  if (gather->parameters.size() > 1 && world_ > 1 && !options().allgather_sequential)
    return gather_coalesced(gather);
  for (const int index : gather->parameters) {
    gather_in_place(index, stream_);
    in_flight_[index] = std::make_shared<Gather>(Gather{{index}, nullptr});
  }
}

/// Of one rank parameters are whole already, if not on the device.
void ParameterCoordinator::gather_in_place(int index, Stream stream) {
  const PartitionedParameter& parameter = parameters_[index];
  if (is_resident(parameter)) return;
  parameter.tensor.storage->allocate();
  if (world_ == 1) {
    host_.issue("fetch." + parameter.name, stream, Copy{}, {parameter.shard},
                {host_.whole(parameter.tensor.storage)});
    return;
  }
  StoragePtr copy;
  const View shard = on_device(parameter.shard, copy, stream);
  host_.issue("all_gather." + parameter.name, stream, AllGather{Group::World}, {shard},
              {host_.whole(parameter.tensor.storage)});
}

/// A shard, or the copy of one that is on the host.
View ParameterCoordinator::on_device(const View& shard, StoragePtr& copy, Stream stream) {
  const Buffer& buffer = host_.plan().buffers[shard.buffer];
  if (buffer.space == Space::Device) return shard;
  copy = host_.allocate({.name = "all_gather.shard",
                         .category = Category::CommunicationBuffers,
                         .elems = shard.elems,
                         .dtype = buffer.dtype,
                         .stream = stream});
  host_.issue("all_gather.shard.to", stream, Copy{}, {shard}, {host_.whole(copy)});
  return host_.whole(copy);
}

void ParameterCoordinator::gather_coalesced(const std::shared_ptr<Gather>& gather) {
  std::int64_t elems = 0;  // of a rank
  for (const int index : gather->parameters) {
    in_flight_[index] = gather;
    elems += parameters_[index].shard.elems;
  }
  gather->buffer = host_.allocate({.name = "all_gather.flat",
                                   .category = Category::CommunicationBuffers,
                                   .elems = elems * world_,
                                   .dtype = tensor(gather->parameters.front()).dtype,
                                   .stream = stream_});
  const View own{gather->buffer->buffer(), 0, elems};
  std::vector<View> shards;
  std::vector<StoragePtr> copies(gather->parameters.size());
  for (std::size_t i = 0; i < copies.size(); ++i)
    shards.push_back(on_device(parameters_[gather->parameters[i]].shard, copies[i], stream_));
  host_.issue("all_gather.cat", stream_, Compute{Kernel::Elementwise, {}}, shards, {own});
  host_.issue("all_gather", stream_, AllGather{Group::World}, {own}, {host_.whole(gather->buffer)});
}

/// The first wait copies all parameters out.
void ParameterCoordinator::wait(int index) {
  Gather& gather = *in_flight_.at(index);
  if (gather.complete) return;
  gather.complete = true;
  for (const int each : gather.parameters) {
    parameters_[each].status = Status::Available;
    if (!gather.buffer) continue;
    tensor(each).storage->allocate();
    host_.issue(parameters_[each].name + ".cat", stream_, Compute{Kernel::Elementwise, {}},
                {host_.whole(gather.buffer)}, {host_.whole(tensor(each).storage)});
  }
}

/// Parameters of modules within max_reuse_distance elements from here on.
ParameterCoordinator::Set ParameterCoordinator::reused_later() const {
  Set reused;
  std::int64_t distance = 0;
  for (auto step = static_cast<std::size_t>(step_);
       step < module_order_.size() && distance < options().max_reuse_distance; ++step)
    for (const int index : modules_[module_order_[step]].parameters) {
      reused.insert(index);
      distance += parameters_[index].tensor.elems;
    }
  return reused;
}

const ParameterCoordinator::Set& ParameterCoordinator::released_after(int module) {
  const auto [entry, is_new] = released_.try_emplace({module, step_});
  if (!is_new || modules_[module].parameters.empty()) return entry->second;
  const Set reused = reused_later();
  for (const int index : modules_[module].parameters) {
    const auto until = fetched_until_.find(index);
    // A later use that the prefetch has gone over would not be fetched again.
    const bool skipped = until != fetched_until_.end() && until->second > step_;
    if (!parameters_[index].persists && !skipped && !reused.contains(index))
      entry->second.insert(index);
  }
  return entry->second;
}

void ParameterCoordinator::release(int module, Phase phase) {
  const std::vector<int>& used = modules_[module].parameters;
  Set released = knows_order() ? released_after(module) : Set(used.begin(), used.end());
  Set all(used.begin(), used.end());
  if (phase == Phase::Backward) {
    for (const int index : std::exchange(recomputed_[module], {})) {
      all.insert(index);
      if (!parameters_[index].persists) released.insert(index);
    }
    std::erase(active_backward_, module);
  }
  const UnitScope scope(host_, modules_[module].unit);
  for (const int index : all) {
    parameters_[index].users.erase(module);
    if (released.contains(index)) release_parameter(index);
  }
}

void ParameterCoordinator::release_parameter(int index) {
  PartitionedParameter& parameter = parameters_[index];
  if (parameter.status != Status::Available || !parameter.users.empty()) return;
  parameter.status = Status::NotAvailable;
  available_elems_ -= parameter.tensor.elems;
  if (is_resident(parameter)) return;
  parameter.tensor.storage->record_stream(Stream::Compute);
  parameter.tensor.storage->free();
}

void ParameterCoordinator::end_backward() {
  while (!active_backward_.empty()) {
    const int module = active_backward_.back();
    active_backward_.pop_back();
    Set all(modules_[module].parameters.begin(), modules_[module].parameters.end());
    all.merge(std::exchange(recomputed_[module], {}));
    for (const int index : all) {
      parameters_[index].users.erase(module);
      if (!parameters_[index].persists) release_parameter(index);
    }
  }
}

void ParameterCoordinator::release_all() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (in_flight_.contains(index)) wait(index);
    in_flight_.erase(index);
    parameters_[i].users.clear();
    release_parameter(index);
  }
}

void ParameterCoordinator::gather_persistent() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].persists) continue;
    parameters_[i].status = Status::Available;
    gather_in_place(static_cast<int>(i), Stream::Compute);
  }
}

}  // namespace shardplan::torch
