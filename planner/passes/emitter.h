#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// Where an instruction belongs.
struct Slot {
  Stream stream = Stream::Compute;
  Phase phase = Phase::Forward;
  int unit = -1;
};

/// Appends buffers, instructions and segments to a plan, under unique names: the second "a" becomes
/// "a#2".
class Emitter {
 public:
  explicit Emitter(Plan& plan) : plan_(plan) {}

  const Plan& plan() const { return plan_; }

  BufferId buffer(std::string name, Category category, std::int64_t elems,
                  Dtype dtype = Dtype::Float32);
  /// The same, alive through the whole program.
  BufferId resident(std::string name, Category category, std::int64_t elems,
                    Dtype dtype = Dtype::Float32);
  /// Moves it to another memory than the device's.
  void set_space(BufferId id, Space space) { plan_.buffers[id].space = space; }
  void set_class_elems(BufferId id, std::vector<std::int64_t> class_elems) {
    plan_.buffers[id].class_elems = std::move(class_elems);
  }
  View whole(BufferId id) const { return {id, 0, plan_.buffers[id].elems}; }

  InstructionId emit(std::string name, const Slot& slot, Operation operation,
                     std::vector<View> reads, std::vector<View> writes);
  /// Lets `id` wait for `before`, so that less is alive at a time.
  void throttle(InstructionId id, InstructionId before) {
    plan_.instructions[id].after.push_back({before, Why::Throttle});
  }

  /// A segment of what `body` emits; returns its index.
  template <typename Body>
  int segment(std::string name, Body body) {
    const auto first = static_cast<InstructionId>(plan_.instructions.size());
    body();
    plan_.segments.push_back(
        {std::move(name), first, static_cast<InstructionId>(plan_.instructions.size())});
    return static_cast<int>(plan_.segments.size()) - 1;
  }

 private:
  using Counts = std::unordered_map<std::string, int>;
  static std::string unique(Counts& seen, std::string name);

  Plan& plan_;
  Counts buffers_;
  Counts instructions_;
};

}  // namespace shardplan
