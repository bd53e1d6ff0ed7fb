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
  Synchroniser(Plan& plan, const std::vector<Bytes>& addresses, Why why)
      : plan_(plan), why_(why), walk_(plan), history_(plan, addresses) {}

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
    std::array<std::int32_t, kStreams> needed;  // the latest position by stream
    needed.fill(-1);
    history_.for_each_conflict(id, [&](std::int32_t position, const View&) {
      if (walk_.covers(position)) return;
      std::int32_t& latest = needed[static_cast<int>(walk_.stream_of(position))];
      latest = std::max(latest, position);
    });
    // The latest first: what it has waited for needs no wait of its own.
    std::ranges::sort(needed, std::greater<>());
    for (const std::int32_t position : needed) {
      if (position < 0 || walk_.covers(position)) continue;
      const InstructionId source = walk_.instruction_at(position);
      plan_.instructions[id].after.push_back({source, why_});
      walk_.wait_for(source);
    }
  }

  Plan& plan_;
  const Why why_;
  ClockWalk walk_;
  AccessHistory history_;
};

}  // namespace

void add_data_waits(Plan& plan) { Synchroniser(plan, separate_addresses(plan), Why::Data).run(); }

void add_reuse_waits(Plan& plan) {
  Synchroniser(plan, arena_addresses(plan), Why::Reuse).run();
  for (Instruction& instruction : plan.instructions)
    std::erase_if(instruction.after, [](const Wait& wait) { return wait.why == Why::Throttle; });
}

}  // namespace shardplan
