#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/passes/emitter.h"
#include "plans/plan.h"

namespace shardplan::torch {

class Host;

/// What a storage is made for.
struct StorageSpec {
  std::string name;
  Category category = Category::Temporaries;
  std::int64_t elems = 0;
  Dtype dtype = Dtype::Float32;
  Stream stream = Stream::Compute;             // whose pool of the caching allocator it comes from
  std::vector<std::int64_t> class_elems = {};  // Buffer::class_elems
  Space space = Space::Device;
};

/// The memory of tensors that view it: one buffer of the plan. It is freed with its last owner, as
/// in PyTorch; between, it may be resized to nothing and back.
class Storage {
 public:
  /// `host` must outlive this. Does not allocate yet.
  Storage(Host& host, BufferId buffer, Stream stream)
      : host_(host), buffer_(buffer), stream_(stream) {}
  ~Storage() { free(); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  BufferId buffer() const { return buffer_; }
  Stream stream() const { return stream_; }
  bool allocated() const { return allocated_; }

  /// No effect when it is allocated.
  void allocate();
  /// No effect when it is not.
  void free();
  /// The allocator keeps the block, once freed, until the work on `stream` up to then is done.
  void record_stream(Stream stream);

 private:
  Host& host_;
  BufferId buffer_;
  Stream stream_;
  bool allocated_ = false;
  std::vector<Stream> used_on_;
};
using StoragePtr = std::shared_ptr<Storage>;

/// The thread of a PyTorch process that runs Python: everything a plan holds is issued by it, in
/// its order.
class Host {
 public:
  explicit Host(Emitter& emitter) : emitter_(emitter) { latest_.fill(-1); }

  const Plan& plan() const { return emitter_.plan(); }
  Emitter& emitter() { return emitter_; }

  /// Phase and unit of what is issued from here on.
  void enter(Phase phase) { phase_ = phase; }
  void enter_unit(int unit) { unit_ = unit; }
  Phase phase() const { return phase_; }
  int unit() const { return unit_; }
  /// From here on nothing is freed: what is alive stays so to the end of the program.
  void close() { open_ = false; }

  /// A storage that is not allocated; none for no elements.
  StoragePtr reserve(const StorageSpec& spec);
  StoragePtr allocate(const StorageSpec& spec);
  /// A storage that lives through the whole program, without instructions for it.
  StoragePtr resident(const StorageSpec& spec);

  View whole(const StoragePtr& storage) const { return emitter_.whole(storage->buffer()); }

  /// The latest instruction on the stream; -1: none.
  InstructionId latest(Stream stream) const { return latest_[static_cast<std::size_t>(stream)]; }
  /// Blocks until `id` has finished.
  void wait_for(std::string name, InstructionId id);

  InstructionId issue(std::string name, Stream stream, Operation operation, std::vector<View> reads,
                      std::vector<View> writes);

 private:
  friend class Storage;
  void issue_alloc(const Storage& storage);
  void issue_free(const Storage& storage, std::vector<Stream> used_on);
  const std::string& name_of(const Storage& storage) const {
    return plan().buffers[storage.buffer()].name;
  }

  Emitter& emitter_;
  Phase phase_ = Phase::Init;
  int unit_ = -1;
  bool open_ = true;
  std::array<InstructionId, kStreams> latest_;
};

/// What is issued within its life is of a unit; then again of the one before.
class UnitScope {
 public:
  UnitScope(Host& host, int unit) : host_(host), outer_(host.unit()) { host.enter_unit(unit); }
  ~UnitScope() { host_.enter_unit(outer_); }
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  Host& host_;
  const int outer_;
};

}  // namespace shardplan::torch
