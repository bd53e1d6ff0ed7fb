#include "plans/lifetimes.h"

#include <algorithm>
#include <numeric>

namespace shardplan {

std::vector<Lifetime> lifetimes(const Plan& plan, std::span<const InstructionId> order) {
  std::vector<Lifetime> lives(plan.buffers.size());
  const auto last_position = static_cast<std::int32_t>(order.size()) - 1;
  for (std::size_t b = 0; b < lives.size(); ++b)
    if (plan.buffers[b].resident && last_position >= 0) lives[b] = {0, last_position};
  const auto touch = [&](const View& view, std::int32_t position) {
    if (plan.buffers[view.buffer].resident) return;
    Lifetime& life = lives[view.buffer];
    if (life.first < 0) life.first = position;
    life.last = position;
  };
  for (std::int32_t position = 0; position <= last_position; ++position) {
    const Instruction& instruction = plan.instructions[order[position]];
    for (const View& view : instruction.reads)
      touch(view, position);
    for (const View& view : instruction.writes)
      touch(view, position);
  }
  return lives;
}

std::vector<Bytes> live_bytes(const Plan& plan, std::span<const Lifetime> lives,
                              std::size_t order_size) {
  std::vector<Bytes> live(order_size + 1, 0);  // changes first, then their running sum
  for (std::size_t b = 0; b < lives.size(); ++b) {
    if (lives[b].first < 0 || plan.buffers[b].space != Space::Device) continue;
    live[lives[b].first] += plan.buffers[b].bytes();
    live[lives[b].last + 1] -= plan.buffers[b].bytes();
  }
  live.pop_back();
  std::partial_sum(live.begin(), live.end(), live.begin());
  return live;
}

LivePeak live_peak(std::span<const Bytes> live) {
  if (live.empty()) return {};
  const auto peak = std::max_element(live.begin(), live.end());
  return {static_cast<std::int32_t>(peak - live.begin()), *peak};
}

}  // namespace shardplan
