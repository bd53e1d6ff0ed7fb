#include "runtime/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string>

#include "plans/error.h"
#include "plans/lifetimes.h"

namespace shardplan {
namespace {

// A signalling NaN as float32 and no token number: no kernel writes it.
constexpr std::uint32_t kPattern = 0x7fb1d5e5;
constexpr std::size_t kWord = sizeof(kPattern);

void fill_pattern(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kWord)
    std::memcpy(bytes.data() + at, &kPattern, std::min(kWord, bytes.size() - at));
}

bool changed_at(std::span<const std::byte> bytes, std::size_t at) {
  return std::memcmp(bytes.data() + at, &kPattern, std::min(kWord, bytes.size() - at)) != 0;
}

/// Bytes in words that differ from the pattern.
Bytes count_changed(std::span<const std::byte> bytes) {
  std::size_t changed = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kWord)
    if (changed_at(bytes, at)) changed += std::min(kWord, bytes.size() - at);
  return static_cast<Bytes>(changed);
}

/// Bytes up to and with the last word that differs from the pattern.
Bytes extent_of(std::span<const std::byte> bytes) {
  for (std::size_t end = round_up(static_cast<Bytes>(bytes.size()), kWord); end > 0; end -= kWord)
    if (changed_at(bytes, end - kWord)) return static_cast<Bytes>(std::min(end, bytes.size()));
  return 0;
}

void expect_pattern(std::span<const std::byte> bytes, std::string_view where) {
  const Bytes changed = count_changed(bytes);
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
      begins_(plan.instructions.size()),
      ends_(plan.instructions.size()),
      changed_(plan.buffers.size(), 0) {
  fill_pattern(arena.guard_before());
  fill_pattern(arena.bytes());
  fill_pattern(arena.guard_after());

  const std::vector<InstructionId> order = first_pass(plan);
  const std::vector<Lifetime> lives = lifetimes(plan, order);
  const LivePeak peak = live_peak(plan, lives, order.size());
  std::vector<InstructionId> last_writer(plan.buffers.size(), -1);
  for (const InstructionId id : order)
    for (const View& view : plan.instructions[id].writes)
      last_writer[view.buffer] = id;
  if (peak.position >= 0) peak_ = order[peak.position];
  for (std::size_t b = 0; b < lives.size(); ++b) {
    const auto buffer = static_cast<BufferId>(b);
    if (lives[b].first < 0) continue;
    if (lives[b].first <= peak.position && peak.position <= lives[b].last)
      at_peak_.push_back(buffer);
    if (plan.buffers[b].resident) continue;
    begins_[order[lives[b].first]].push_back(buffer);
    if (last_writer[b] >= 0) ends_[last_writer[b]].push_back(buffer);
  }
}

std::span<std::byte> MemoryMeter::bytes_of(BufferId buffer) {
  const Buffer& planned = plan_.buffers[buffer];
  return arena_.bytes().subspan(planned.offset, planned.bytes());
}

void MemoryMeter::before(const Issue& issue) {
  if (!issue.first) return;
  for (const BufferId buffer : begins_[issue.id])
    fill_pattern(bytes_of(buffer));
}

void MemoryMeter::after(const Issue& issue) {
  if (!issue.first) return;
  for (const BufferId buffer : ends_[issue.id])
    changed_[buffer] = count_changed(bytes_of(buffer));
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
    if (until > end)
      expect_pattern(arena_.bytes().subspan(end, until - end),
                     fmt::format("from offset {} of the arena on", end));
  };
  for (const Buffer* buffer : sorted) {
    expect_gap(buffer->offset);
    end = std::max(end, buffer->offset + buffer->bytes());
  }
  expect_gap(plan_.arena.bytes);
}

RankMemory MemoryMeter::finish() {
  expect_untouched_outside();
  for (std::size_t b = 0; b < changed_.size(); ++b)
    if (plan_.buffers[b].resident) changed_[b] = count_changed(bytes_of(static_cast<BufferId>(b)));
  RankMemory memory;
  memory.peak_allocated_bytes = extent_of(arena_.bytes());
  memory.at_peak.emplace();
  memory.at_peak->fill(0);
  for (const BufferId buffer : at_peak_)
    (*memory.at_peak)[static_cast<int>(plan_.buffers[buffer].category)] += changed_[buffer];
  if (peak_ >= 0) {
    memory.peak_at = plan_.instructions[peak_].name;
    memory.peak_phase = to_string(plan_.instructions[peak_].phase);
  }
  return memory;
}

std::optional<Bytes> resident_set_bytes() {
  std::ifstream status("/proc/self/status");
  const std::string key = "VmRSS:";
  for (std::string word; status >> word;) {
    Bytes kibibytes = 0;
    if (word == key && status >> kibibytes) return kibibytes * 1024;
  }
  return {};
}

}  // namespace shardplan
