#include "runtime/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "plans/error.h"
#include "plans/lifetimes.h"

namespace shardplan {
namespace {

// A signalling NaN as float32 and no token number: no kernel writes it.
constexpr std::uint32_t kPattern = 0x7fb1d5e5;
constexpr Bytes kWord = sizeof(kPattern);

/// True when the word or part of a word at `at` of `memory`, up to `end`, is not the pattern's.
bool changed_at(std::span<const std::byte> memory, Bytes at, Bytes end) {
  if (end - at == kWord) {
    std::uint32_t word;
    std::memcpy(&word, memory.data() + at, kWord);
    return word != kPattern;
  }
  const auto* pattern = reinterpret_cast<const std::byte*>(&kPattern);
  return std::memcmp(memory.data() + at, pattern + at % kWord, end - at) != 0;
}

Bytes word_end(Bytes at, Bytes end) { return std::min(end, at - at % kWord + kWord); }

void fill_pattern(std::span<std::byte> memory, Bytes begin, Bytes end) {
  const auto* pattern = reinterpret_cast<const std::byte*>(&kPattern);
  for (Bytes at = begin, next = 0; at < end; at = next) {
    next = word_end(at, end);
    std::memcpy(memory.data() + at, pattern + at % kWord, next - at);
  }
}
void fill_pattern(std::span<std::byte> memory) {
  fill_pattern(memory, 0, static_cast<Bytes>(memory.size()));
}

/// Bytes in words of [begin, end) that differ from the pattern.
Bytes count_changed(std::span<const std::byte> memory, Bytes begin, Bytes end) {
  Bytes changed = 0;
  for (Bytes at = begin, next = 0; at < end; at = next) {
    next = word_end(at, end);
    if (changed_at(memory, at, next)) changed += next - at;
  }
  return changed;
}

/// Bytes up to and with the last word that differs from the pattern.
Bytes extent_of(std::span<const std::byte> memory) {
  const auto size = static_cast<Bytes>(memory.size());
  for (Bytes at = round_up(size, kWord) - kWord; at >= 0; at -= kWord)
    if (changed_at(memory, at, word_end(at, size))) return word_end(at, size);
  return 0;
}

void expect_pattern(std::span<const std::byte> memory, Bytes begin, Bytes end,
                    std::string_view where) {
  const Bytes changed = count_changed(memory, begin, end);
  if (changed > 0)
    throw SystemError(
        fmt::format("memory overrun: {} bytes {} were written to, where the plan has no buffer",
                    changed, where));
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

MemoryMeter::MemoryMeter(const Plan& plan, Arena& arena)
    : plan_(plan),
      arena_(arena),
      cells_(plan.buffers.size()),
      begins_(plan.instructions.size()),
      ends_(plan.instructions.size()) {
  fill_pattern(arena.guard_before());
  fill_pattern(arena.bytes());
  fill_pattern(arena.guard_after());

  const std::vector<InstructionId> order = first_pass(plan);
  const std::vector<Lifetime> lives = lifetimes(plan, order);
  const LivePeak peak = live_peak(live_bytes(plan, lives, order.size()));
  if (peak.position >= 0) peak_ = order[peak.position];
  for (std::size_t b = 0; b < lives.size(); ++b)
    if (lives[b].first >= 0 && lives[b].first <= peak.position && peak.position <= lives[b].last)
      at_peak_.push_back(static_cast<BufferId>(b));
  cut_into_cells(order);
  find_writers(order);
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

void MemoryMeter::before(const Issue& issue) {
  if (!issue.first) return;
  for (const Cell* cell : begins_[issue.id])
    fill_pattern(arena_.bytes(), cell->begin, cell->end);
}

void MemoryMeter::after(const Issue& issue) {
  if (!issue.first) return;
  for (Cell* cell : ends_[issue.id])
    cell->changed = count_changed(arena_.bytes(), cell->begin, cell->end);
}

void MemoryMeter::expect_untouched_outside() const {
  expect_pattern(arena_.guard_before(), 0, Arena::kGuardBytes, "before the arena");
  expect_pattern(arena_.guard_after(), 0, Arena::kGuardBytes, "after the arena");
  std::vector<const Buffer*> sorted;
  for (const Buffer& buffer : plan_.buffers)
    sorted.push_back(&buffer);
  std::ranges::sort(sorted, {}, &Buffer::offset);
  Bytes end = 0;
  const auto expect_gap = [&](Bytes until) {
    expect_pattern(arena_.bytes(), end, until, fmt::format("from offset {} of the arena on", end));
  };
  for (const Buffer* buffer : sorted) {
    expect_gap(buffer->offset);
    end = std::max(end, buffer->offset + buffer->bytes());
  }
  expect_gap(plan_.arena.bytes);
}

Bytes MemoryMeter::changed_of(BufferId id) const {
  const Buffer& buffer = plan_.buffers[id];
  if (buffer.resident)
    return count_changed(arena_.bytes(), buffer.offset, buffer.offset + buffer.bytes());
  Bytes changed = 0;
  for (const Cell& cell : cells_[id])
    changed += cell.changed;
  return changed;
}

RankMemory MemoryMeter::finish() {
  expect_untouched_outside();
  RankMemory memory;
  memory.peak_allocated_bytes = extent_of(arena_.bytes());
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
