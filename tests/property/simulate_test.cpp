#include "simulator/simulate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "planner/cost/collective.h"
#include "simulator/events.h"
#include "simulator/overlap.h"
#include "tests/property/random_plan.h"

namespace shardplan {
namespace {

using testing::random_plan;

const CostConstants kCosts{.matmul_efficiency = 0.8,
                           .attention = {.flash2 = 0.5},
                           .memory_efficiency = 0.8,
                           .kernel_latency_s = 1e-6,
                           .host_issue_s = 1e-6,
                           .host_collective_s = 1e-5,
                           .collective_latency_s = 1e-5,
                           .collective_compute_share = 0.15,
                           .collective_protocols = {{.name = "ring", .rate_share = 0.8}},
                           .device_context_bytes = 100,
                           .communicator_bytes = 10};

std::vector<Interval> intervals_of(const Plan& plan) {
  return run_events(plan, instruction_costs(plan, kCosts), issue_order(plan, 3));
}

void expect_no_later(const Plan& faster, const Plan& slower) {
  const std::vector<Interval> fast = intervals_of(faster);
  const std::vector<Interval> slow = intervals_of(slower);
  for (std::size_t p = 0; p < fast.size(); ++p)
    RC_ASSERT(fast[p].begin_s <= slow[p].begin_s && fast[p].end_s <= slow[p].end_s);
}

RC_GTEST_PROP(Simulate, MoreBandwidthMakesNothingLater, ()) {
  const Plan slower = random_plan();
  Plan faster = slower;
  faster.job.cluster.network.intra_node_bytes_per_s *= *rc::gen::inRange(1, 5);
  faster.job.cluster.network.inter_node_bytes_per_s *= *rc::gen::inRange(1, 5);
  faster.job.cluster.network.inter_node_latency_s /= *rc::gen::inRange(1, 5);
  expect_no_later(faster, slower);
}

RC_GTEST_PROP(Simulate, AFasterGpuMakesNothingLater, ()) {
  const Plan slower = random_plan();
  Plan faster = slower;
  faster.job.cluster.gpu.memory_bandwidth_bytes_per_s *= *rc::gen::inRange(1, 5);
  faster.job.cluster.gpu.matmul_flops_fp32 *= *rc::gen::inRange(1, 5);
  faster.job.cluster.gpu.matmul_flops_bf16 *= *rc::gen::inRange(1, 5);
  faster.job.cluster.gpu.reachable_matmul_flops_bf16 = faster.job.cluster.gpu.matmul_flops_bf16;
  expect_no_later(faster, slower);
}

RC_GTEST_PROP(Simulate, ANewWaitMakesNothingEarlier, ()) {
  const Plan freer = random_plan();
  RC_PRE(!freer.instructions.empty());
  Plan tied = freer;
  const auto last = static_cast<InstructionId>(freer.instructions.size());
  tied.instructions[*rc::gen::inRange(0, last)].after.push_back({*rc::gen::inRange(0, last)});
  expect_no_later(freer, tied);
}

RC_GTEST_PROP(Simulate, StreamsAndTheLinkDoOneThingAtATime, ()) {
  const Plan plan = random_plan();
  const std::vector<InstructionCost> costs = instruction_costs(plan, kCosts);
  const IssueOrder order = issue_order(plan, 3);
  const std::vector<Interval> intervals = run_events(plan, costs, order);
  std::vector<Seconds> free(kStreams, 0);
  Seconds link = 0;
  for (std::size_t p = 0; p < intervals.size(); ++p) {
    Seconds& stream = free[static_cast<int>(plan.instructions[order.ids[p]].stream)];
    RC_ASSERT(intervals[p].begin_s >= stream);
    stream = intervals[p].end_s;
    if (!costs[order.ids[p]].on_link()) continue;
    RC_ASSERT(intervals[p].begin_s >= link);
    link = intervals[p].end_s;
  }
}

RC_GTEST_PROP(Simulate, ExposedAndHiddenCommunicationAddUp, ()) {
  const Plan plan = random_plan();
  const Report report = simulate(plan, kCosts);
  if (!report.time) return;  // nothing in the step takes time
  const TimeReport& time = *report.time;
  const double rounding = 1e-9 * time.step_s;
  RC_ASSERT(time.exposed_communication_s >= 0);
  RC_ASSERT(time.exposed_communication_s <= time.communication_s + rounding);
  RC_ASSERT(time.communication_s <= time.step_s + rounding);
  RC_ASSERT(time.compute_s + time.exposed_communication_s <= time.step_s + rounding);
}

RC_GTEST_PROP(Simulate, OneRankCommunicatesNothing, ()) {
  Plan plan = random_plan();
  plan.mesh = {};
  const Report report = simulate(plan, kCosts);
  RC_ASSERT(report.collectives.empty());
  RC_ASSERT(report.bytes_sent_per_rank == 0);
}

RC_GTEST_PROP(Simulate, CategoriesAtThePeakAddUpToTheLargestPhase, ()) {
  const Report report = simulate(random_plan(), kCosts);
  const RankMemory& memory = report.ranks.front().memory;
  Bytes sum = 0;
  for (const auto& bytes : memory.at_peak)
    sum += bytes.value_or(0);
  Bytes largest = 0;
  for (const PhaseMemory& phase : memory.phases)
    largest = std::max(largest, phase.peak_bytes.value_or(0));
  RC_ASSERT(sum == largest);
}

RC_GTEST_PROP(Overlap, CountsTheSecondsThatBothCover, ()) {
  // Whole seconds, so that counting them one by one is exact.
  constexpr int kEnd = 60;
  const auto draw = [] {
    std::vector<Interval> intervals;
    for (int at = *rc::gen::inRange(0, 8); at < kEnd; at += *rc::gen::inRange(1, 8)) {
      const int length = *rc::gen::inRange(0, 8);
      intervals.push_back({double(at), double(at + length)});
      at += length;
    }
    return intervals;
  };
  const std::vector<Interval> a = draw();
  const std::vector<Interval> b = draw();
  const int begin = *rc::gen::inRange(0, kEnd);
  const int end = *rc::gen::inRange(begin, kEnd + 1);
  const auto covers = [](const std::vector<Interval>& intervals, int second) {
    for (const Interval& interval : intervals)
      if (interval.begin_s <= second && second < interval.end_s) return true;
    return false;
  };
  int in_a = 0;
  int in_both = 0;
  for (int second = begin; second < end; ++second) {
    in_a += covers(a, second) ? 1 : 0;
    in_both += covers(a, second) && covers(b, second) ? 1 : 0;
  }
  RC_ASSERT(covered(a, {double(begin), double(end)}) == in_a);
  RC_ASSERT(overlap(a, b, {double(begin), double(end)}) == in_both);
}

RC_GTEST_PROP(Cost, ARingSendsItsShareOfTheBytes, ()) {
  const std::int64_t group = *rc::gen::inRange(1, 100'000);
  const Bytes shard = *rc::gen::inRange(0, 1 << 20);
  RC_ASSERT(ring_all_gather_traffic(shard * group, group) == shard * (group - 1));
  RC_ASSERT(ring_all_reduce_traffic(shard * group, group) == 2 * shard * (group - 1));
}

}  // namespace
}  // namespace shardplan
