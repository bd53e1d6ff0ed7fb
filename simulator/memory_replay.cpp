#include "simulator/memory_replay.h"

#include <algorithm>
#include <utility>

#include "plans/error.h"
#include "simulator/events.h"

namespace shardplan {
namespace {

bool names_streams(const Instruction& instruction) {
  const auto* free = std::get_if<Free>(&instruction.operation);
  return free != nullptr && !free->used_on.empty();
}

}  // namespace

ReuseTimes reuse_times(const Plan& plan, const CostConstants& costs,
                       std::span<const InstructionId> order) {
  ReuseTimes times;
  if (std::ranges::none_of(plan.instructions, names_streams)) return times;
  const IssueOrder issue{{order.begin(), order.end()}, {order.size()}};
  const std::vector<Interval> intervals = run_events(plan, instruction_costs(plan, costs), issue);
  std::array<Seconds, kStreams> ends{};
  Seconds now = 0;
  for (std::size_t p = 0; p < order.size(); ++p) {
    const Instruction& instruction = plan.instructions[order[p]];
    const auto stream = static_cast<std::size_t>(instruction.stream);
    if (instruction.stream == Stream::Compute) now = std::max(now, intervals[p].begin_s);
    times.issued.push_back(now);
    times.reusable.push_back(0);
    if (names_streams(instruction))
      for (const Stream used : std::get<Free>(instruction.operation).used_on)
        times.reusable[p] = std::max(times.reusable[p], ends[static_cast<std::size_t>(used)]);
    ends[stream] = std::max(ends[stream], intervals[p].end_s);
  }
  return times;
}

MemoryReplay::MemoryReplay(const Plan& plan, std::size_t rank_class, ReuseTimes times)
    : plan_(plan),
      rank_class_(rank_class),
      times_(std::move(times)),
      allocator_({.expandable_segments = plan.expandable_segments}),
      blocks_(plan.buffers.size(), CachingAllocator::kNoBlock) {
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].resident) alloc(static_cast<BufferId>(b), Stream::Compute);
}

void MemoryReplay::issue(InstructionId id) {
  const Instruction& instruction = plan_.instructions[id];
  if (std::holds_alternative<Alloc>(instruction.operation))
    alloc(instruction.writes[0].buffer, instruction.stream);
  if (std::holds_alternative<Free>(instruction.operation))
    free(instruction.writes[0].buffer, names_streams(instruction));
  ++position_;
}

void MemoryReplay::alloc(BufferId id, Stream stream) {
  if (plan_.buffers[id].space != Space::Device) return count_host(id, 1);
  const Seconds now = times_.issued.empty() ? 0 : times_.issued[position_];
  const auto block =
      allocator_.allocate(plan_.buffers[id].bytes(rank_class_), static_cast<int>(stream), now);
  check(block.has_value(), "an allocator without a limit has memory");
  blocks_[id] = *block;
  count(id, 1);
}

void MemoryReplay::free(BufferId id, bool used_elsewhere) {
  if (plan_.buffers[id].space != Space::Device) return count_host(id, -1);
  if (blocks_[id] != CachingAllocator::kNoBlock) {
    if (used_elsewhere && !times_.reusable.empty())
      allocator_.release_after(blocks_[id], times_.reusable[position_]);
    else
      allocator_.release(blocks_[id]);
  }
  count(id, -1);
}

void MemoryReplay::count_host(BufferId id, Bytes sign) {
  const Buffer& buffer = plan_.buffers[id];
  if (buffer.space != Space::Disk) host_ += sign * buffer.bytes(rank_class_);
}

void MemoryReplay::count(BufferId id, Bytes sign) {
  const Bytes bytes = sign * plan_.buffers[id].bytes(rank_class_);
  requested_ += bytes;
  by_category_[static_cast<std::size_t>(plan_.buffers[id].category)] += bytes;
}

}  // namespace shardplan
