#include "simulator/events.h"

#include <algorithm>
#include <array>
#include <variant>

#include "planner/cost/collective.h"
#include "planner/cost/compute.h"

namespace shardplan {
namespace {

/// Costs of one instruction, by its kind.
class CostOf {
 public:
  CostOf(const Plan& plan, const CostConstants& costs) : plan_(plan), costs_(costs) {
    for (int g = 0; g < kGroups; ++g)
      placements_[g] =
          placement_of(plan.mesh, static_cast<Group>(g), plan.job.cluster.gpus_per_node);
  }

  InstructionCost operator()(const Instruction& instruction) {
    instruction_ = &instruction;
    return std::visit(*this, instruction.operation);
  }

  InstructionCost operator()(const Alloc&) const { return {}; }
  InstructionCost operator()(const Free&) const { return {}; }
  InstructionCost operator()(const HostWait&) const { return {}; }
  InstructionCost operator()(const Compute&) const { return local(); }
  InstructionCost operator()(const Copy&) const { return local(); }
  InstructionCost operator()(const Fill&) const { return local(); }
  InstructionCost operator()(const Read&) const { return local(); }
  InstructionCost operator()(const Write&) const { return local(); }

  InstructionCost operator()(const AllGather& gather) const {
    const GroupPlacement& group = placement(gather.group);
    const Bytes full = bytes(instruction_->writes);
    return collective(CollectiveKind::AllGather, full, group,
                      ring_all_gather_traffic(full, group.ranks));
  }
  InstructionCost operator()(const ReduceScatter& reduction) const {
    const GroupPlacement& group = placement(reduction.group);
    const Bytes full = bytes(instruction_->reads);
    return collective(CollectiveKind::ReduceScatter, full, group,
                      ring_all_gather_traffic(full, group.ranks));
  }
  InstructionCost operator()(const AllReduce& reduction) const {
    const GroupPlacement& group = placement(reduction.group);
    const Bytes full = bytes(instruction_->writes);
    return collective(CollectiveKind::AllReduce, full, group,
                      ring_all_reduce_traffic(full, group.ranks));
  }
  InstructionCost operator()(const Broadcast& broadcast) const {
    const GroupPlacement& group = placement(broadcast.group);
    const Bytes full = bytes(instruction_->writes);
    return collective(CollectiveKind::Broadcast, full, group,
                      ring_all_gather_traffic(full, group.ranks));
  }

 private:
  const GroupPlacement& placement(Group group) const {
    return placements_[static_cast<std::size_t>(group)];
  }
  Bytes bytes(const std::vector<View>& views) const { return bytes_of(plan_, views); }
  InstructionCost local() const {
    return {.seconds = compute_time(plan_, *instruction_, costs_),
            .host_s = costs_.host_issue_s * launched_share(*instruction_, costs_)};
  }
  /// A group of one exchanges nothing; what is left is a copy.
  InstructionCost collective(CollectiveKind kind, Bytes full, const GroupPlacement& group,
                             Bytes sent) const {
    if (group.ranks == 1) return local();
    const NetworkSpec& network = plan_.job.cluster.network;
    const Seconds seconds = collective_time(kind, full, group, network, costs_);
    return {seconds, group.ranks, sent, costs_.host_collective_s,
            seconds * costs_.collective_compute_share};
  }

  const Plan& plan_;
  const CostConstants& costs_;
  std::array<GroupPlacement, kGroups> placements_;
  const Instruction* instruction_ = nullptr;
};

void issue(const Plan& plan, const ProgramItem& item, int steps, std::int64_t most_passes,
           IssueOrder& order) {
  const bool loop_over_steps = item.count == ProgramItem::kOncePerStep;
  const bool first_step = item.count == ProgramItem::kFirstStep;
  const std::int64_t times = loop_over_steps ? steps
                             : first_step    ? 1
                                             : std::min(item.count, most_passes);
  for (std::int64_t pass = 0; pass < times; ++pass) {
    if (item.segment >= 0) {
      const Segment& segment = plan.segments[item.segment];
      for (InstructionId id = segment.first; id < segment.last; ++id)
        order.ids.push_back(id);
    }
    for (const ProgramItem& inner : item.body)
      issue(plan, inner, steps, most_passes, order);
    if (loop_over_steps || first_step) order.step_ends.push_back(order.ids.size());
  }
}

}  // namespace

std::vector<InstructionCost> instruction_costs(const Plan& plan, const CostConstants& costs) {
  std::vector<InstructionCost> result;
  result.reserve(plan.instructions.size());
  CostOf cost_of(plan, costs);
  for (const Instruction& instruction : plan.instructions)
    result.push_back(cost_of(instruction));
  return result;
}

IssueOrder issue_order(const Plan& plan, int steps, std::int64_t most_passes) {
  IssueOrder order;
  for (const ProgramItem& item : plan.program) {
    issue(plan, item, steps, most_passes, order);
    if (item.count == ProgramItem::kOncePerStep) return order;
  }
  order.step_ends.push_back(order.ids.size());
  return order;
}

std::vector<Interval> run_events(const Plan& plan, std::span<const InstructionCost> costs,
                                 const IssueOrder& order) {
  std::vector<Interval> intervals;
  intervals.reserve(order.ids.size());
  std::vector<Seconds> latest_end(plan.instructions.size(), 0);  // of the latest issue, by id
  std::array<Seconds, kStreams> stream_free{};
  Seconds link_free = 0;
  Seconds host_free = 0;
  for (const InstructionId id : order.ids) {
    const Instruction& instruction = plan.instructions[id];
    host_free += costs[id].host_s;
    Seconds& free = stream_free[static_cast<std::size_t>(instruction.stream)];
    Seconds begin = std::max(free, host_free);
    for (const Wait& wait : instruction.after)
      begin = std::max(begin, latest_end[wait.id]);
    if (costs[id].on_link()) begin = std::max(begin, link_free);
    const Seconds end = begin + costs[id].seconds;
    if (costs[id].on_link()) link_free = end;
    if (std::holds_alternative<HostWait>(instruction.operation)) host_free = end;
    free = end;
    if (instruction.stream != Stream::Compute)
      stream_free[static_cast<std::size_t>(Stream::Compute)] += costs[id].compute_s;
    latest_end[id] = end;
    intervals.push_back({begin, end});
  }
  return intervals;
}

}  // namespace shardplan
