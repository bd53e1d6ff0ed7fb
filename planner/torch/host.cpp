#include "planner/torch/host.h"

#include <algorithm>
#include <utility>

namespace shardplan::torch {

void Storage::allocate() {
  if (allocated_) return;
  allocated_ = true;
  host_.issue_alloc(*this);
}

void Storage::free() {
  if (!allocated_) return;
  allocated_ = false;
  host_.issue_free(*this, std::exchange(used_on_, {}));
}

void Storage::record_stream(Stream stream) {
  if (stream != stream_ && std::ranges::find(used_on_, stream) == used_on_.end())
    used_on_.push_back(stream);
}

StoragePtr Host::reserve(const StorageSpec& spec) {
  if (spec.elems == 0) return nullptr;
  const BufferId buffer = emitter_.buffer(spec.name, spec.category, spec.elems, spec.dtype);
  if (!spec.class_elems.empty()) emitter_.set_class_elems(buffer, spec.class_elems);
  emitter_.set_space(buffer, spec.space);
  return std::make_shared<Storage>(*this, buffer, spec.stream);
}

StoragePtr Host::allocate(const StorageSpec& spec) {
  StoragePtr storage = reserve(spec);
  if (storage) storage->allocate();
  return storage;
}

StoragePtr Host::resident(const StorageSpec& spec) {
  const BufferId buffer = emitter_.resident(spec.name, spec.category, spec.elems, spec.dtype);
  if (!spec.class_elems.empty()) emitter_.set_class_elems(buffer, spec.class_elems);
  emitter_.set_space(buffer, spec.space);
  return std::make_shared<Storage>(*this, buffer, spec.stream);
}

InstructionId Host::issue(std::string name, Stream stream, Operation operation,
                          std::vector<View> reads, std::vector<View> writes) {
  return latest_[static_cast<std::size_t>(stream)] =
             emitter_.emit(std::move(name), {stream, phase_, unit_}, std::move(operation),
                           std::move(reads), std::move(writes));
}

void Host::wait_for(std::string name, InstructionId id) {
  emitter_.throttle(issue(std::move(name), Stream::Host, HostWait{}, {}, {}), id);
}

void Host::issue_alloc(const Storage& storage) {
  issue("alloc." + name_of(storage), storage.stream(), Alloc{}, {},
        {emitter_.whole(storage.buffer())});
}

void Host::issue_free(const Storage& storage, std::vector<Stream> used_on) {
  if (!open_) return;
  issue("free." + name_of(storage), storage.stream(), Free{std::move(used_on)}, {},
        {emitter_.whole(storage.buffer())});
}

}  // namespace shardplan::torch
