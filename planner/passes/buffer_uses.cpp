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

Life new_life(std::int32_t position) {
  Life life{.first = position, .last = position, .end = {}, .start = {}};
  life.end.fill(-1);
  life.start.fill(std::numeric_limits<std::int32_t>::max());
  return life;
}

}  // namespace

std::vector<BufferUse> buffer_uses(const Plan& plan) {
  const std::vector<InstructionId> order = unroll(plan, 2);
  const HappensBefore happens_before(plan, order);
  std::vector<BufferUse> uses(plan.buffers.size());
  std::vector<InstructionId> openers(plan.buffers.size(), -1);
  for (std::int32_t position = 0; position < static_cast<std::int32_t>(order.size()); ++position) {
    const InstructionId id = order[position];
    const Instruction& instruction = plan.instructions[id];
    const int stream = static_cast<int>(instruction.stream);
    const auto touch = [&](const View& view) {
      BufferUse& use = uses[view.buffer];
      if (openers[view.buffer] < 0) openers[view.buffer] = id;
      const bool opens =
          openers[view.buffer] == id && (use.lives.empty() || use.lives.back().first != position);
      if (opens) use.lives.push_back(new_life(position));
      Life& life = use.lives.back();
      meet(life.start, happens_before.clock(position));
      use.buffer = view.buffer;
      life.last = position;
      life.end[stream] = position;
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

bool apart(const BufferUse& a, const BufferUse& b) {
  const bool one_stream = a.stream == b.stream && a.stream < kStreams;
  const Life* previous = nullptr;
  bool previous_is_a = false;
  int turns = 0;  // from one buffer to the other and back: all that later iterations repeat
  auto next_a = a.lives.begin();
  auto next_b = b.lives.begin();
  while (turns < 2 && (next_a != a.lives.end() || next_b != b.lives.end())) {
    const bool is_a =
        next_b == b.lives.end() || (next_a != a.lives.end() && next_a->first < next_b->first);
    const Life& life = is_a ? *next_a++ : *next_b++;
    if (previous != nullptr && is_a != previous_is_a) {
      if (previous->last >= life.first) return false;
      if (!one_stream && !covers(life.start, previous->end)) return false;
      ++turns;
    }
    previous = &life;
    previous_is_a = is_a;
  }
  return true;
}

}  // namespace shardplan
