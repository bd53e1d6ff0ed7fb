#include "runtime/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "plans/error.h"
#include "plans/lifetimes.h"

namespace shardplan {
namespace {

std::span<std::byte> part(std::span<std::byte> memory, Bytes begin, Bytes end) {
  return memory.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

/// The issue order of one pass in which every instruction occurs once.
std::vector<InstructionId> first_pass(const Plan& plan) {
  std::vector<char> seen(plan.instructions.size(), 0);
  std::vector<InstructionId> order;
  for (const InstructionId id : unroll(plan, 1))
    if (!std::exchange(seen[id], char{1})) order.push_back(id);
  return order;
}

}  // namespace

MemoryMeter::MemoryMeter(const Plan& plan, const Arena& arena, Device& device)
    : plan_(plan),
      arena_(arena),
      device_(device),
      cells_(plan.buffers.size()),
      begins_(plan.instructions.size()),
      ends_(plan.instructions.size()) {
  device.fill_pattern(Stream::Compute, arena.all());
  device.finish(Stream::Compute);

  const std::vector<InstructionId> order = first_pass(plan);
  const std::vector<Lifetime> lives = lifetimes(plan, order);
  const LivePeak peak = live_peak(live_bytes(plan, lives, order.size()));
  if (peak.position >= 0) peak_ = order[peak.position];
  for (std::size_t b = 0; b < lives.size(); ++b)
    if (lives[b].first >= 0 && lives[b].first <= peak.position && peak.position <= lives[b].last)
      at_peak_.push_back(static_cast<BufferId>(b));
  cut_into_cells(order);
  find_writers(order);
  place_counters();
}

/// Cuts every buffer wherever an operand begins or ends.
void MemoryMeter::cut_into_cells(std::span<const InstructionId> order) {
  std::vector<std::set<std::int64_t>> cuts(plan_.buffers.size());
  for (const InstructionId id : order)
    for (const auto* views : {&plan_.instructions[id].reads, &plan_.instructions[id].writes})
      for (const View& view : *views)
        cuts[view.buffer].insert({view.at, view.at + view.elems});
  for (std::size_t b = 0; b < cuts.size(); ++b) {
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.resident || cuts[b].empty()) continue;
    const auto address = [&](std::int64_t elem) {
      return buffer.offset + elem * size_of(buffer.dtype);
    };
    for (auto cut = cuts[b].begin(); std::next(cut) != cuts[b].end(); ++cut)
      cells_[b].push_back({.begin = address(*cut), .end = address(*std::next(cut))});
  }
}

void MemoryMeter::find_writers(std::span<const InstructionId> order) {
  std::set<const Cell*> touched;
  const auto for_cells = [&](const View& view, auto action) {
    const Buffer& buffer = plan_.buffers[view.buffer];
    const Bytes begin = buffer.offset + view.at * size_of(buffer.dtype);
    const Bytes end = begin + view.elems * size_of(buffer.dtype);
    auto& cells = cells_[view.buffer];
    auto cell = std::ranges::lower_bound(cells, begin, {}, &Cell::begin);
    for (; cell != cells.end() && cell->begin < end; ++cell)
      action(*cell);
  };
  for (const InstructionId id : order) {
    for (const View& view : plan_.instructions[id].reads)
      for_cells(view, [&](Cell& cell) { touched.insert(&cell); });
    for (const View& view : plan_.instructions[id].writes)
      for_cells(view, [&](Cell& cell) {
        if (touched.insert(&cell).second) cell.first_writer = id;
        cell.last_writer = id;
      });
  }
  for (auto& cells : cells_)
    for (Cell& cell : cells) {
      if (cell.first_writer >= 0) begins_[cell.first_writer].push_back(&cell);
      if (cell.last_writer >= 0) ends_[cell.last_writer].push_back(&cell);
    }
}

void MemoryMeter::place_counters() {
  std::size_t count = 1;
  for (const auto& cells : cells_)
    count += cells.size();
  const auto memory = device_.allocate(Space::Pinned, static_cast<Bytes>(count * sizeof(Bytes)));
  counters_ = {reinterpret_cast<Bytes*>(memory.data()), count};
  std::ranges::fill(counters_, 0);
  std::size_t next = 1;
  for (auto& cells : cells_)
    for (Cell& cell : cells)
      cell.changed = &counters_[next++];
}

void MemoryMeter::before(const Issue& issue) {
  if (!issue.first) return;
  for (const Cell* cell : begins_[issue.id])
    device_.fill_pattern(plan_.instructions[issue.id].stream,
                         part(arena_.bytes(), cell->begin, cell->end));
}

void MemoryMeter::after(const Issue& issue) {
  if (!issue.first) return;
  for (const Cell* cell : ends_[issue.id])
    device_.count_changed(plan_.instructions[issue.id].stream,
                          part(arena_.bytes(), cell->begin, cell->end), *cell->changed);
}

Bytes MemoryMeter::changed_now(std::span<const std::byte> memory) {
  device_.count_changed(Stream::Compute, memory, counters_.front());
  device_.finish(Stream::Compute);
  return counters_.front();
}

void MemoryMeter::expect_pattern(std::span<const std::byte> memory, std::string_view where) {
  const Bytes changed = changed_now(memory);
  if (changed > 0)
    throw SystemError(
        fmt::format("memory overrun: {} bytes {} were written to, where the plan has no buffer",
                    changed, where));
}

/// Bytes of the arena up to and with the last word that differs from the pattern.
Bytes MemoryMeter::extent() {
  constexpr Bytes kWord = 4;
  Bytes least = 0;  // words
  Bytes most = round_up(plan_.arena.bytes, kWord) / kWord;
  while (least < most) {
    const Bytes middle = (least + most) / 2;
    const Bytes begin = std::min(middle * kWord, plan_.arena.bytes);
    changed_now(part(arena_.bytes(), begin, plan_.arena.bytes)) > 0 ? least = middle + 1
                                                                    : most = middle;
  }
  return std::min(least * kWord, plan_.arena.bytes);
}

void MemoryMeter::expect_untouched_outside() {
  expect_pattern(arena_.guard_before(), "before the arena");
  expect_pattern(arena_.guard_after(), "after the arena");
  std::vector<const Buffer*> sorted;
  for (const Buffer& buffer : plan_.buffers)
    sorted.push_back(&buffer);
  std::ranges::sort(sorted, {}, &Buffer::offset);
  Bytes end = 0;
  const auto expect_gap = [&](Bytes until) {
    if (end < until)
      expect_pattern(part(arena_.bytes(), end, until),
                     fmt::format("from offset {} of the arena on", end));
  };
  for (const Buffer* buffer : sorted) {
    expect_gap(buffer->offset);
    end = std::max(end, buffer->offset + buffer->bytes());
  }
  expect_gap(plan_.arena.bytes);
}

Bytes MemoryMeter::changed_of(BufferId id) {
  const Buffer& buffer = plan_.buffers[id];
  if (buffer.resident)
    return changed_now(part(arena_.bytes(), buffer.offset, buffer.offset + buffer.bytes()));
  Bytes changed = 0;
  for (const Cell& cell : cells_[id])
    changed += *cell.changed;
  return changed;
}

RankMemory MemoryMeter::finish() {
  expect_untouched_outside();
  RankMemory memory;
  memory.peak_allocated_bytes = extent();
  memory.at_peak.fill(0);
  for (const BufferId buffer : at_peak_)
    *memory.at_peak[static_cast<int>(plan_.buffers[buffer].category)] += changed_of(buffer);
  if (peak_ >= 0) {
    memory.peak_at = plan_.instructions[peak_].name;
    memory.peak_phase = to_string(plan_.instructions[peak_].phase);
  }
  return memory;
}

}  // namespace shardplan
