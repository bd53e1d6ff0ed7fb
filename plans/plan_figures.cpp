#include "plans/plan_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "plans/lifetimes.h"

namespace shardplan {
namespace {

Bytes end_of_arena(const Plan& plan) {
  Bytes end = 0;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.space == Space::Device) end = std::max(end, buffer.offset + buffer.bytes());
  return end;
}

Bytes largest_sum(const Plan& plan) {
  const std::vector<InstructionId> order = unroll(plan, 1);
  return live_peak(live_bytes(plan, lifetimes(plan, order), order.size())).bytes;
}

std::int64_t parameters_of(const Plan& plan) {
  std::int64_t elems = 0;
  for (const Unit& unit : plan.units)
    for (const UnitParameter& parameter : unit.parameters)
      elems += parameter.elems;
  return elems;
}

void expect(std::vector<Fault>& faults, std::string_view what, std::int64_t stated,
            std::int64_t actual) {
  if (stated != actual)
    faults.push_back({"", "", fmt::format("states {} {}, has {}", stated, what, actual)});
}

void check_arena(const Plan& plan, std::vector<Fault>& faults) {
  expect(faults, "bytes of arena", plan.arena.bytes, end_of_arena(plan));
  expect(faults, "bytes as the largest sum in issue order", plan.arena.issue_order_bytes,
         largest_sum(plan));
  if (plan.arena.live_bound_bytes < plan.arena.issue_order_bytes ||
      plan.arena.live_bound_bytes > plan.arena.bytes)
    faults.push_back({"", "",
                      fmt::format("states {} bytes as the live bound, which lies between the "
                                  "largest sum in issue order and the arena",
                                  plan.arena.live_bound_bytes)});
}

}  // namespace

void check_figures(const Plan& plan, std::vector<Fault>& faults) {
  if (has_allocator(plan.profile))
    expect(faults, "bytes of arena", plan.arena.bytes, 0);
  else
    check_arena(plan, faults);
  expect(faults, "parameters", plan.parameter_count, parameters_of(plan));
  if (!std::isfinite(plan.model_flops_per_token) || plan.model_flops_per_token < 0)
    faults.push_back({"", "", "states no number of floating-point operations"});
}

}  // namespace shardplan
