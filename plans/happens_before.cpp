#include "plans/happens_before.h"

#include <algorithm>

namespace shardplan {
namespace {

void join(Clock& clock, const Clock& other) {
  for (int s = 0; s < kStreams; ++s)
    clock[s] = std::max(clock[s], other[s]);
}

}  // namespace

HappensBefore::HappensBefore(const Plan& plan, std::span<const InstructionId> issue_order) {
  Clock none;
  none.fill(-1);
  Clock host = none;                     // what the issuing thread has waited for
  std::array<Clock, kStreams> finished;  // by the last instruction of each stream, itself included
  finished.fill(none);
  std::vector<std::int32_t> latest(plan.instructions.size(), -1);
  clocks_.reserve(issue_order.size());
  streams_.reserve(issue_order.size());

  const auto finish_of = [&](std::int32_t position) {
    Clock clock = clocks_[position];
    clock[static_cast<int>(streams_[position])] = position;
    return clock;
  };
  for (const InstructionId id : issue_order) {
    const Instruction& instruction = plan.instructions[id];
    const auto position = static_cast<std::int32_t>(clocks_.size());
    const int stream = static_cast<int>(instruction.stream);
    Clock clock = host;
    join(clock, finished[stream]);
    for (const Wait& wait : instruction.after)
      if (latest[wait.id] >= 0) join(clock, finish_of(latest[wait.id]));
    clocks_.push_back(clock);
    streams_.push_back(instruction.stream);
    latest[id] = position;
    finished[stream] = finish_of(position);
    if (std::holds_alternative<HostWait>(instruction.operation)) join(host, finished[stream]);
  }
}

}  // namespace shardplan
