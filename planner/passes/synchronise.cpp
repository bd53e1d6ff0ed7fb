#include "planner/passes/synchronise.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "plans/access_history.h"
#include "plans/happens_before.h"

namespace shardplan {
namespace {

class Synchroniser {
 public:
  Synchroniser(Plan& plan, const std::vector<Bytes>& addresses)
      : plan_(plan), walk_(plan), history_(plan, addresses) {}

  void run() {
    for (const InstructionId id : unroll(plan_, 2)) {
      walk_.issue(id);
      for (const Wait& wait : plan_.instructions[id].after)
        if (wait.why != Why::Throttle) walk_.wait_for(wait.id);
      wait_for_conflicts(id);
      history_.record(id, walk_.position());
      walk_.commit();
    }
  }

 private:
  /// Waits for every instruction that touched the operands and is not known to have finished.
  void wait_for_conflicts(InstructionId id) {
    struct Need {
      std::int32_t position = -1;  // the latest on its stream
      Why why = Why::Data;
    };
    std::array<Need, kStreams> needed;
    history_.for_each_conflict(id, [&](std::int32_t position, const View& view) {
      if (walk_.covers(position) || !must_wait(plan_.instructions[id], walk_.stream_of(position)))
        return;
      Need& latest = needed[static_cast<int>(walk_.stream_of(position))];
      if (position > latest.position) latest = {position, reason(position, view)};
    });
    // The latest first: what it has waited for needs no wait of its own.
    std::ranges::sort(needed, std::greater<>(), &Need::position);
    for (const Need& need : needed) {
      if (need.position < 0 || walk_.covers(need.position)) continue;
      const InstructionId source = walk_.instruction_at(need.position);
      plan_.instructions[id].after.push_back({source, need.why});
      walk_.wait_for(source);
    }
  }

  /// The same buffer on both sides is data; another one's bytes are taken over.
  Why reason(std::int32_t position, const View& view) const {
    const Instruction& other = plan_.instructions[walk_.instruction_at(position)];
    for (const auto* views : {&other.reads, &other.writes})
      for (const View& touched : *views)
        if (touched.buffer == view.buffer) return Why::Data;
    return Why::Reuse;
  }

  Plan& plan_;
  ClockWalk walk_;
  AccessHistory history_;
};

}  // namespace

void add_data_waits(Plan& plan) { Synchroniser(plan, separate_addresses(plan)).run(); }

void add_arena_waits(Plan& plan) {
  for (Instruction& instruction : plan.instructions)
    instruction.after.clear();
  Synchroniser(plan, arena_addresses(plan)).run();
}

}  // namespace shardplan
