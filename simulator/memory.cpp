#include "simulator/memory.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "plans/lifetimes.h"
#include "plans/run_phases.h"
#include "simulator/memory_replay.h"

namespace shardplan {
namespace {

/// Communicators a rank is part of: one per group that talks. An axis as long as the world is the
/// same set of ranks.
Bytes communicators(const Plan& plan) {
  std::set<Group> groups;
  for (const Instruction& instruction : plan.instructions) {
    const std::optional<Group> group = group_of(instruction.operation);
    if (!group || plan.mesh.size(*group) == 1) continue;
    groups.insert(plan.mesh.size(*group) == plan.world_size() ? Group::World : *group);
  }
  return static_cast<Bytes>(groups.size());
}

Bytes host_bytes(const Plan& plan) {
  Bytes sum = 0;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.space == Space::Pinned || buffer.space == Space::Host) sum += buffer.bytes();
  return sum;
}

/// What is alive in device memory at `position`.
CategoryBytes by_category(const Plan& plan, std::span<const Lifetime> lives,
                          std::int32_t position) {
  CategoryBytes bytes;
  bytes.fill(0);
  for (std::size_t b = 0; b < lives.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    const bool alive =
        lives[b].first >= 0 && lives[b].first <= position && position <= lives[b].last;
    if (alive && buffer.space == Space::Device)
      *bytes[static_cast<std::size_t>(buffer.category)] += buffer.bytes();
  }
  return bytes;
}

/// Bytes that die with each position.
std::vector<Bytes> freed_bytes(const Plan& plan, std::span<const Lifetime> lives,
                               std::size_t positions) {
  std::vector<Bytes> freed(positions, 0);
  for (std::size_t b = 0; b < lives.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (lives[b].first >= 0 && !buffer.resident && buffer.space == Space::Device)
      freed[lives[b].last] += buffer.bytes();
  }
  return freed;
}

void fill_phases(const Plan& plan, std::span<const InstructionId> order,
                 std::span<const Lifetime> lives, std::span<const Bytes> live, RankMemory& memory) {
  const std::vector<Bytes> freed = freed_bytes(plan, lives, order.size());
  const std::vector<RunPhases> phases = run_phases(plan);
  for (int phase = 0; phase < kRunPhases; ++phase) {
    std::int32_t peak = -1;  // positions
    std::int32_t last = -1;
    for (std::int32_t p = 0; p < static_cast<std::int32_t>(phases.size()); ++p) {
      if (!phases[p][phase]) continue;
      last = p;
      if (peak < 0 || live[p] > live[peak]) peak = p;
    }
    if (peak >= 0)
      memory.phases[phase] = {live[peak], live[last] - freed[last],
                              plan.instructions[order[peak]].name, by_category(plan, lives, peak)};
  }
}

void measure_arena(const Plan& plan, RankMemory& memory) {
  const std::vector<InstructionId> order = unroll(plan, 1);
  const std::vector<Lifetime> lives = lifetimes(plan, order);
  const std::vector<Bytes> live = live_bytes(plan, lives, order.size());
  memory.peak_allocated_bytes = plan.arena.bytes;
  memory.peak_reserved_bytes = plan.arena.bytes;
  if (const LivePeak peak = live_peak(live); peak.position >= 0) {
    const Instruction& instruction = plan.instructions[order[peak.position]];
    memory.peak_at = instruction.name;
    memory.peak_phase = to_string(instruction.phase);
    memory.at_peak = by_category(plan, lives, peak.position);
  }
  fill_phases(plan, order, lives, live, memory);
}

CategoryBytes known(const MemoryReplay::Categories& categories) {
  CategoryBytes bytes;
  std::ranges::copy(categories, bytes.begin());
  return bytes;
}

/// What all rank classes have in common of a plan that allocates.
struct Issue {
  std::vector<InstructionId> order;
  std::vector<RunPhases> phases;  // by position
  ReuseTimes times;
};

void play_allocations(const Plan& plan, const Issue& issue, std::size_t rank_class,
                      RankMemory& memory) {
  const auto& [order, phases, times] = issue;
  MemoryReplay replay(plan, rank_class, times);
  Bytes peak = -1;
  memory.host_bytes = replay.host();
  for (std::size_t p = 0; p < order.size(); ++p) {
    replay.issue(order[p]);
    memory.host_bytes = std::max(*memory.host_bytes, replay.host());
    const Instruction& instruction = plan.instructions[order[p]];
    const Bytes allocated = replay.allocator().use().allocated;
    for (int phase = 0; phase < kRunPhases; ++phase) {
      if (!phases[p][phase]) continue;
      PhaseMemory& seen = memory.phases[phase];
      if (!seen.peak_bytes || allocated > *seen.peak_bytes)
        seen = {allocated, {}, instruction.name, known(replay.by_category())};
      seen.end_bytes = allocated;
    }
    if (allocated <= peak) continue;
    peak = allocated;
    memory.peak_at = instruction.name;
    memory.peak_phase = to_string(instruction.phase);
    memory.at_peak = known(replay.by_category());
  }
  memory.peak_allocated_bytes = replay.allocator().peak().allocated;
  memory.peak_reserved_bytes = replay.allocator().peak().reserved;
}

/// Memory that no buffer of the plan is.
RankMemory beside_buffers(const Plan& plan, const CostConstants& costs) {
  const bool gpu = !plan.job.cluster.gpu.is_cpu();
  RankMemory memory;
  memory.device_context_bytes = gpu ? costs.device_context_bytes : 0;
  memory.communicator_bytes = gpu ? communicators(plan) * costs.communicator_bytes : 0;
  memory.library_workspace_bytes = 0;  // workspaces are buffers of the plan
  memory.host_bytes = host_bytes(plan);
  return memory;
}

}  // namespace

std::vector<RankMemory> rank_memories(const Plan& plan, const CostConstants& costs) {
  std::vector<RankMemory> memories(std::max<std::size_t>(plan.classes.size(), 1),
                                   beside_buffers(plan, costs));
  if (has_allocator(plan.profile)) {
    const std::vector<InstructionId> order = unroll(plan, 1);
    const Issue issue{order, run_phases(plan), reuse_times(plan, costs, order)};
    for (std::size_t c = 0; c < memories.size(); ++c)
      play_allocations(plan, issue, c, memories[c]);
  } else {
    measure_arena(plan, memories.front());
    std::fill(memories.begin() + 1, memories.end(), memories.front());
  }
  for (RankMemory& memory : memories)
    memory.peak_device_bytes = *memory.peak_reserved_bytes + *memory.device_context_bytes +
                               *memory.communicator_bytes + *memory.library_workspace_bytes;
  return memories;
}

}  // namespace shardplan
