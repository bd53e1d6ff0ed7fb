#include "simulator/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <variant>

#include "planner/cost/compute.h"
#include "plans/error.h"
#include "simulator/events.h"
#include "simulator/memory.h"
#include "simulator/overlap.h"

namespace shardplan {
namespace {

/// The third of four steps is the steady one: the first starts cold, and the fourth may begin
/// before the third ends.
constexpr int kSteps = 4;
constexpr std::size_t kSteady = 2;

struct Simulation {
  const Plan& plan;
  std::vector<InstructionCost> costs;
  IssueOrder order;
  std::vector<Interval> intervals;  // by position
  std::size_t steady;               // index of the steady step

  std::span<const InstructionId> steady_step() const { return order.step(steady); }
};

void require(double rate, std::string_view field) {
  if (!(rate > 0))
    throw InputError(fmt::format("{}: expected a number greater than 0, got {}", field, rate));
}

void check_rates(const ClusterJob& cluster) {
  require(cluster.gpu.memory_bandwidth_bytes_per_s, "cluster.gpu.memory_bandwidth_bytes_per_s");
  require(cluster.gpu.matmul_flops_fp32, "cluster.gpu.matmul_flops_fp32");
  require(cluster.gpu.pcie_bytes_per_s, "cluster.gpu.pcie_bytes_per_s");
  if (cluster.gpus_per_node > 1)
    require(cluster.network.intra_node_bytes_per_s, "cluster.network.intra_node_bytes_per_s");
  if (cluster.nodes > 1)
    require(cluster.network.inter_node_bytes_per_s, "cluster.network.inter_node_bytes_per_s");
}

Simulation run(const Plan& plan, const CostConstants& constants) {
  Simulation simulation{plan, instruction_costs(plan, constants), issue_order(plan, kSteps), {}, 0};
  simulation.intervals = run_events(plan, simulation.costs, simulation.order);
  simulation.steady = std::min(kSteady, simulation.order.step_ends.size() - 1);
  return simulation;
}

/// From the moment that everything of the steps before has finished to the same for the steady one.
Interval steady_window(const Simulation& simulation) {
  const auto end_of = [&](std::size_t steps) {
    Seconds end = 0;
    const std::size_t positions = steps == 0 ? 0 : simulation.order.step_ends[steps - 1];
    for (std::size_t p = 0; p < positions; ++p)
      end = std::max(end, simulation.intervals[p].end_s);
    return end;
  };
  return {end_of(simulation.steady), end_of(simulation.steady + 1)};
}

std::int64_t tokens_per_rank(const Simulation& simulation) {
  std::int64_t tokens = 0;
  for (const InstructionId id : simulation.steady_step()) {
    const Instruction& instruction = simulation.plan.instructions[id];
    const auto* read = std::get_if<Read>(&instruction.operation);
    if (read == nullptr || read->source != Source::Tokens) continue;
    for (const View& view : instruction.writes)
      tokens += view.elems;
  }
  return tokens;
}

/// Rate of the fastest matrix product in the plan: what model FLOPs utilisation is measured by.
double peak_flops_per_s(const Plan& plan) {
  double peak = 0;
  for (const Instruction& instruction : plan.instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.operation);
    if (compute == nullptr || !is_matrix_product(compute->kernel) || instruction.reads.empty())
      continue;
    const Dtype dtype = plan.buffers[instruction.reads.front().buffer].dtype;
    peak = std::max(peak, matmul_flops_per_s(plan.job.cluster.gpu, dtype));
  }
  return peak;
}

/// Sums over the steady step; empty when it takes no time.
std::optional<TimeReport> time_report(const Simulation& simulation) {
  const Plan& plan = simulation.plan;
  const Interval window = steady_window(simulation);
  TimeReport time;
  time.step_s = window.end_s - window.begin_s;
  if (time.step_s <= 0) return std::nullopt;

  std::vector<Interval> compute;
  std::vector<Interval> collectives;
  for (std::size_t p = 0; p < simulation.intervals.size(); ++p) {
    const InstructionId id = simulation.order.ids[p];
    if (simulation.costs[id].on_link()) {
      collectives.push_back(simulation.intervals[p]);
    } else if (plan.instructions[id].stream == Stream::Compute) {
      compute.push_back(simulation.intervals[p]);
    }
  }
  time.compute_s = covered(compute, window);
  time.communication_s = covered(collectives, window);
  time.exposed_communication_s =
      std::max(0.0, time.communication_s - overlap(collectives, compute, window));

  const auto tokens = static_cast<double>(tokens_per_rank(simulation));
  time.tokens_per_s_per_gpu = tokens / time.step_s;
  time.tokens_per_s = time.tokens_per_s_per_gpu * static_cast<double>(plan.world_size());
  const double peak = peak_flops_per_s(plan);
  if (peak > 0 && plan.model_flops_per_token > 0)
    time.mfu = plan.model_flops_per_token * time.tokens_per_s_per_gpu / peak;
  if (plan.job.run.steps > 0) time.total_s = time.step_s * plan.job.run.steps;
  return time;
}

std::optional<CostReport> cost_report(const Plan& plan, const std::optional<TimeReport>& time) {
  if (!plan.job.cluster.price_per_gpu_hour) return std::nullopt;
  CostReport cost;
  cost.per_hour = *plan.job.cluster.price_per_gpu_hour * static_cast<double>(plan.world_size());
  const double per_second = *cost.per_hour / 3600;
  if (time && time->tokens_per_s > 0)
    cost.per_billion_tokens = per_second * 1e9 / time->tokens_per_s;
  if (time && time->total_s) cost.total = per_second * *time->total_s;
  return cost;
}

/// Everything the ranks exchange in the steady step.
void add_communication(const Simulation& simulation, Report& report) {
  const Plan& plan = simulation.plan;
  report.bytes_sent_per_rank = 0;
  for (const InstructionId id : simulation.steady_step()) {
    if (!simulation.costs[id].on_link()) continue;
    const Instruction& instruction = plan.instructions[id];
    CollectiveReport& collective = report.collectives.emplace_back();
    collective.kind = kind_of(instruction.operation);
    collective.phase = to_string(instruction.phase);
    if (instruction.unit >= 0) collective.unit = plan.units[instruction.unit].name;
    for (const View& view : instruction.writes)
      collective.dtype = plan.buffers[view.buffer].dtype;
    collective.input_bytes = bytes_of(plan, instruction.reads);
    collective.output_bytes = bytes_of(plan, instruction.writes);
    collective.group_size = simulation.costs[id].ranks;
    *report.bytes_sent_per_rank += simulation.costs[id].sent;
  }
}

/// Bytes of the parameters that a rank owns, without padding.
Bytes owned_parameters(const Plan& plan, std::int64_t rank) {
  Bytes bytes = 0;
  for (const RankClass& ranks : plan.classes)
    if (ranks.first <= rank && rank <= ranks.last)
      for (const std::int64_t elems : ranks.valid)
        bytes += elems * size_of(plan.job.model.dtype);
  return bytes;
}

void add_memory(const Plan& plan, const CostConstants& constants, Report& report) {
  const GpuSpec& gpu = plan.job.cluster.gpu;
  report.limit_bytes = gpu.memory_bytes;
  report.limit_from =
      fmt::format("memory_bytes of {}", gpu.key.empty() ? "the job's GPU" : gpu.key);
  // Classes do not tell replicas of a shard group apart. With an arena all ranks have the memory of
  // one padded size.
  const bool replicas = plan.ranks_in_classes() < plan.world_size();
  const bool alike = !has_allocator(plan.profile) || plan.classes.size() == 1;
  const std::vector<RankClass> all{{0, plan.world_size() - 1, {}}};
  const std::vector<RankClass>& classes = replicas && alike ? all : plan.classes;
  const std::vector<RankMemory> memories = rank_memories(plan, constants);
  report.fits = true;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    std::string name = classes[c].first == classes[c].last
                           ? fmt::format("{}", classes[c].first)
                           : fmt::format("{}-{}", classes[c].first, classes[c].last);
    if (replicas && !alike) name += fmt::format(" of every {}", plan.ranks_in_classes());
    report.ranks.push_back({name, memories[c], owned_parameters(plan, classes[c].first)});
    if (*memories[c].peak_device_bytes > gpu.memory_bytes) report.fits = false;
  }
}

/// The steady step, its times counted from the first begin.
std::vector<TimelineEntry> timeline(const Simulation& simulation) {
  const std::span<const InstructionId> step = simulation.steady_step();
  const std::size_t first = step.data() - simulation.order.ids.data();
  std::vector<TimelineEntry> entries;
  entries.reserve(step.size());
  Seconds origin = std::numeric_limits<Seconds>::max();
  for (std::size_t i = 0; i < step.size(); ++i) {
    const Interval interval = simulation.intervals[first + i];
    entries.push_back({step[i], interval.begin_s, interval.end_s});
    origin = std::min(origin, interval.begin_s);
  }
  for (TimelineEntry& entry : entries) {
    entry.begin_s -= origin;
    entry.end_s -= origin;
  }
  return entries;
}

}  // namespace

std::optional<TimeReport> simulate_time(const Plan& plan, const CostConstants& costs) {
  check_rates(plan.job.cluster);
  return time_report(run(plan, costs));
}

Report simulate(const Plan& plan, const CostConstants& costs, const SimulateOptions& options) {
  check_rates(plan.job.cluster);
  const Simulation simulation = run(plan, costs);
  Report report;
  report.world_size = plan.world_size();
  if (!has_allocator(plan.profile)) report.arena = plan.arena;
  add_memory(plan, costs, report);
  add_communication(simulation, report);
  report.time = time_report(simulation);
  report.cost = cost_report(plan, report.time);
  if (options.timeline) report.timeline = timeline(simulation);
  return report;
}

}  // namespace shardplan
