#include "planner/passes/buffer_uses.h"

#include <algorithm>
#include <limits>

namespace shardplan {
namespace {

bool covers(const Clock& clock, const Clock& positions) {
  for (int s = 0; s < kStreams; ++s)
    if (positions[s] > clock[s]) return false;
  return true;
}

void meet(Clock& clock, const Clock& other) {
  for (int s = 0; s < kStreams; ++s)
    clock[s] = std::min(clock[s], other[s]);
}

}  // namespace

std::vector<BufferUse> buffer_uses(const Plan& plan) {
  const std::vector<InstructionId> order = unroll(plan, 2);
  const HappensBefore happens_before(plan, order);
  BufferUse unused;
  unused.end.fill(-1);
  unused.start.fill(std::numeric_limits<std::int32_t>::max());
  unused.next_start = unused.start;
  std::vector<BufferUse> uses(plan.buffers.size(), unused);
  std::vector<bool> issued(plan.instructions.size(), false);
  for (std::int32_t position = 0; position < static_cast<std::int32_t>(order.size()); ++position) {
    const Instruction& instruction = plan.instructions[order[position]];
    const bool again = issued[order[position]];
    issued[order[position]] = true;
    const int stream = static_cast<int>(instruction.stream);
    const auto touch = [&](const View& view) {
      BufferUse& use = uses[view.buffer];
      meet(again ? use.next_start : use.start, happens_before.clock(position));
      if (again) return;
      use.buffer = view.buffer;
      if (use.first < 0) use.first = position;
      use.last = position;
      use.end[stream] = position;
      use.stream = use.stream < 0 || use.stream == stream ? stream : kStreams;
    };
    for (const View& view : instruction.reads)
      touch(view);
    for (const View& view : instruction.writes)
      touch(view);
  }
  std::erase_if(uses, [&](const BufferUse& use) {
    return use.buffer < 0 || plan.buffers[use.buffer].resident ||
           plan.buffers[use.buffer].space != Space::Device;
  });
  return uses;
}

bool wholly_before(const BufferUse& earlier, const BufferUse& later) {
  if (earlier.last >= later.first) return false;
  if (earlier.stream == later.stream && earlier.stream < kStreams) return true;
  return covers(later.start, earlier.end) && covers(earlier.next_start, later.end);
}

}  // namespace shardplan
