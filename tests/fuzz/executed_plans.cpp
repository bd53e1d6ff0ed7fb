#include "tests/fuzz/executed_plans.h"

#include <cstdint>

namespace shardplan {
namespace {

constexpr Bytes kLargestArena = Bytes{1} << 20;
constexpr std::int64_t kMostRanks = 3;
constexpr double kMostFlops = 1e7;
constexpr std::size_t kMostInstructions = 2000;

std::int64_t issues(const ProgramItem& item, const Plan& plan) {
  std::int64_t once = 0;
  if (item.segment >= 0)
    once = plan.segments[item.segment].last - plan.segments[item.segment].first;
  for (const ProgramItem& inner : item.body)
    once += issues(inner, plan);
  return item.count == ProgramItem::kOncePerStep ? once : item.count * once;
}

}  // namespace

bool is_small(const Plan& plan) {
  if (plan.arena.bytes > kLargestArena || plan.world_size() > kMostRanks) return false;
  std::int64_t all = 0;
  for (const ProgramItem& item : plan.program)
    all += issues(item, plan);
  if (all > static_cast<std::int64_t>(kMostInstructions)) return false;
  double flops = 0;
  for (const Instruction& instruction : plan.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.operation))
      flops += flops_of(compute->kernel, compute->attributes);
  return flops * static_cast<double>(all + 1) / static_cast<double>(plan.instructions.size() + 1) <
         kMostFlops;
}

}  // namespace shardplan
