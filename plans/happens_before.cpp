#include "plans/happens_before.h"

#include <algorithm>

namespace shardplan {
namespace {

Clock empty_clock() {
  Clock clock;
  clock.fill(-1);
  return clock;
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  for (int s = 0; s < kStreams; ++s)
    clock[s] = std::max(clock[s], other[s]);
}

ClockWalk::ClockWalk(const Plan& plan)
    : plan_(plan),
      clock_(empty_clock()),
      host_(empty_clock()),
      finished_(plan.instructions.size(), empty_clock()),
      latest_(plan.instructions.size(), -1) {
  streams_finished_.fill(empty_clock());
}

void ClockWalk::issue(InstructionId id) {
  const Stream stream = plan_.instructions[id].stream;
  clock_ = host_;
  join(clock_, streams_finished_[static_cast<int>(stream)]);
  streams_.push_back(stream);
  ids_.push_back(id);
}

void ClockWalk::wait_for(InstructionId id) {
  if (latest_[id] >= 0) join(clock_, finished_[id]);
}

void ClockWalk::commit() {
  const InstructionId id = ids_.back();
  Clock end = clock_;
  end[static_cast<int>(streams_.back())] = position();
  finished_[id] = end;
  latest_[id] = position();
  streams_finished_[static_cast<int>(streams_.back())] = end;
  if (std::holds_alternative<HostWait>(plan_.instructions[id].operation)) join(host_, end);
}

HappensBefore::HappensBefore(const Plan& plan, std::span<const InstructionId> issue_order) {
  ClockWalk walk(plan);
  clocks_.reserve(issue_order.size());
  streams_.reserve(issue_order.size());
  for (const InstructionId id : issue_order) {
    walk.issue(id);
    for (const Wait& wait : plan.instructions[id].after)
      walk.wait_for(wait.id);
    clocks_.push_back(walk.clock());
    streams_.push_back(plan.instructions[id].stream);
    walk.commit();
  }
}

}  // namespace shardplan
