#include "plans/access_history.h"

#include <algorithm>

namespace shardplan {
namespace {

AddressRange range_of(const Plan& plan, const std::vector<Bytes>& addresses, const View& view) {
  const Bytes size = size_of(plan.buffers[view.buffer].dtype);
  const Bytes begin = addresses[view.buffer] + view.at * size;
  return {begin, begin + view.elems * size};
}

std::vector<AddressRange> all_ranges(const Plan& plan, const std::vector<Bytes>& addresses) {
  std::vector<AddressRange> ranges;
  for (const Instruction& instruction : plan.instructions)
    for (const auto* views : {&instruction.reads, &instruction.writes})
      for (const View& view : *views)
        ranges.push_back(range_of(plan, addresses, view));
  return ranges;
}

}  // namespace

std::vector<Bytes> separate_addresses(const Plan& plan) {
  std::vector<Bytes> addresses;
  Bytes next = 0;
  for (const Buffer& buffer : plan.buffers) {
    addresses.push_back(next);
    next += buffer.bytes();
  }
  return addresses;
}

std::vector<Bytes> arena_addresses(const Plan& plan) {
  std::vector<Bytes> addresses;
  Bytes next = plan.arena.bytes;
  for (const Buffer& buffer : plan.buffers) {
    const bool inside = buffer.space == Space::Device;
    addresses.push_back(inside ? buffer.offset : next);
    if (!inside) next += buffer.bytes();
  }
  return addresses;
}

bool must_wait(const Instruction& later, Stream earlier) {
  if (std::holds_alternative<Alloc>(later.operation)) return false;
  const auto* free = std::get_if<Free>(&later.operation);
  return free == nullptr || std::ranges::find(free->used_on, earlier) == free->used_on.end();
}

AccessHistory::AccessHistory(const Plan& plan, const std::vector<Bytes>& addresses)
    : AccessHistory(plan, all_ranges(plan, addresses)) {}

AccessHistory::AccessHistory(const Plan& plan, const std::vector<AddressRange>& ranges)
    : plan_(plan), cells_(ranges), footprints_(plan.instructions.size()) {
  auto next = ranges.begin();
  for (std::size_t id = 0; id < plan.instructions.size(); ++id) {
    for (std::size_t i = 0; i < plan.instructions[id].reads.size(); ++i)
      footprints_[id].reads.push_back(cells_.of(*next++));
    for (std::size_t i = 0; i < plan.instructions[id].writes.size(); ++i)
      footprints_[id].writes.push_back(cells_.of(*next++));
  }
  states_.resize(cells_.count());
}

void AccessHistory::record(InstructionId id, std::int32_t position) {
  const int stream = static_cast<int>(plan_.instructions[id].stream);
  for (const CellRange& range : footprints_[id].reads)
    for (std::int32_t cell = range.begin; cell < range.end; ++cell)
      states_[cell].readers[stream] = position;
  for (const CellRange& range : footprints_[id].writes)
    for (std::int32_t cell = range.begin; cell < range.end; ++cell) {
      states_[cell].writer = position;
      states_[cell].readers.fill(-1);
    }
}

}  // namespace shardplan
