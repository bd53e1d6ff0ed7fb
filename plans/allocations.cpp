#include "plans/allocations.h"

#include <fmt/format.h>

namespace shardplan {
namespace {

class AllocationCheck {
 public:
  AllocationCheck(const Plan& plan, std::vector<Fault>& faults)
      : plan_(plan), faults_(faults), allocated_(plan.buffers.size()) {
    for (std::size_t b = 0; b < allocated_.size(); ++b)
      allocated_[b] = plan.buffers[b].resident;
  }

  void run() {
    // Twice round every loop: what is not as it was at the loop's begin shows in the second pass.
    for (const InstructionId id : unroll(plan_, 2)) {
      const Instruction& instruction = plan_.instructions[id];
      if (std::holds_alternative<Alloc>(instruction.operation))
        change(instruction, false);
      else if (std::holds_alternative<Free>(instruction.operation))
        change(instruction, true);
      else
        check_use(instruction);
      if (!faults_.empty()) return;  // one fault brings many
    }
    check_reductions();
  }

 private:
  void fault(const Instruction& instruction, BufferId buffer, std::string why) {
    faults_.push_back({instruction.name, plan_.buffers[buffer].name, std::move(why)});
  }

  /// An alloc or free of what is allocated, or not, before it.
  void change(const Instruction& instruction, bool before) {
    const BufferId buffer = instruction.writes[0].buffer;
    if (plan_.buffers[buffer].resident)
      fault(instruction, buffer, "is resident: nothing allocates or frees it");
    else if (allocated_[buffer] != before)
      fault(instruction, buffer, before ? "is freed twice" : "is allocated twice");
    allocated_[buffer] = !before;
  }

  void check_use(const Instruction& instruction) {
    for (const auto* views : {&instruction.reads, &instruction.writes})
      for (const View& view : *views)
        if (!allocated_[view.buffer])
          return fault(instruction, view.buffer, "is used while it is not allocated");
  }

  void count(const ProgramItem& item, std::int64_t times, std::vector<std::int64_t>& counts) const {
    if (item.count > 0) times *= item.count;
    const auto add = [&](const std::vector<int>& units) {
      for (const int unit : units)
        counts[unit] += times;
    };
    if (item.segment >= 0) {
      const Segment& segment = plan_.segments[item.segment];
      for (InstructionId id = segment.first; id < segment.last; ++id) {
        const Operation& operation = plan_.instructions[id].operation;
        if (const auto* scatter = std::get_if<ReduceScatter>(&operation)) add(scatter->contributes);
        if (const auto* reduce = std::get_if<AllReduce>(&operation)) add(reduce->contributes);
      }
    }
    for (const ProgramItem& inner : item.body)
      count(inner, times, counts);
  }

  void check_reductions() {
    if (plan_.world_size() == 1) return;
    const GradientAccumulation& accumulation = plan_.job.training.gradient_accumulation;
    const std::int64_t expected =
        accumulation.sync == GradientAccumulation::Sync::Every ? accumulation.steps : 1;
    for (const ProgramItem& item : plan_.program) {
      if (item.count > 0) continue;  // no step
      std::vector<std::int64_t> counts(plan_.units.size(), 0);
      count(item, 1, counts);
      for (std::size_t u = 0; u < counts.size(); ++u) {
        const std::int64_t wanted = plan_.units[u].trainable_elems() > 0 ? expected : 0;
        if (counts[u] != wanted)
          faults_.push_back({"", "",
                             fmt::format("a step reduces the gradients of unit {} {} times, not {}",
                                         plan_.units[u].name, counts[u], wanted)});
      }
    }
  }

  const Plan& plan_;
  std::vector<Fault>& faults_;
  std::vector<bool> allocated_;  // by buffer
};

}  // namespace

void check_allocations(const Plan& plan, std::vector<Fault>& faults) {
  AllocationCheck(plan, faults).run();
}

}  // namespace shardplan
