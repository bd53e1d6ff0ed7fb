#include "simulator/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "planner/cost/compute.h"
#include "plans/error.h"
#include "simulator/events.h"
#include "simulator/memory.h"
#include "simulator/overlap.h"
#include "simulator/time_range.h"

namespace shardplan {
namespace {

/// The third of four steps is the steady one: the first starts cold, and the fourth may begin
/// before the third ends.
constexpr int kSteps = 4;
constexpr std::size_t kSteady = 2;

/// A long loop inside a step is run so many times: then each pass takes as long as the one before.
constexpr std::int64_t kFewPasses = 6;
constexpr double kSame = 1e-6;  // share by which the durations of such passes may differ

struct Simulation {
  const Plan& plan;
  const std::vector<InstructionCost>& costs;
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

Simulation ordered(const Plan& plan, const std::vector<InstructionCost>& costs,
                   std::int64_t most_passes) {
  Simulation simulation{plan, costs, issue_order(plan, kSteps, most_passes), {}, 0};
  simulation.steady = std::min(kSteady, simulation.order.step_ends.size() - 1);
  return simulation;
}

/// Runs what has not run yet.
void run(Simulation& simulation) {
  if (simulation.intervals.empty())
    simulation.intervals = run_events(simulation.plan, simulation.costs, simulation.order);
}

Simulation run(const Plan& plan, const std::vector<InstructionCost>& costs,
               std::int64_t most_passes) {
  Simulation simulation = ordered(plan, costs, most_passes);
  run(simulation);
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
    const std::int64_t bits = compute->attributes.integer(Attribute::OperandBits);
    peak = std::max(peak, matmul_flops_per_s(plan.job.cluster.gpu, dtype, bits));
  }
  return peak;
}

/// Sums over the steady step.
struct StepSums {
  Seconds step_s = 0;
  Seconds compute_s = 0;
  Seconds communication_s = 0;
  Seconds hidden_s = 0;  // communication beside compute
  double tokens = 0;     // of a rank
};

StepSums sums_of(const Simulation& simulation) {
  const Interval window = steady_window(simulation);
  std::vector<Interval> compute;
  std::vector<Interval> collectives;
  for (std::size_t p = 0; p < simulation.intervals.size(); ++p) {
    const InstructionId id = simulation.order.ids[p];
    if (simulation.costs[id].on_link()) {
      collectives.push_back(simulation.intervals[p]);
    } else if (simulation.plan.instructions[id].stream == Stream::Compute) {
      compute.push_back(simulation.intervals[p]);
    }
  }
  return {.step_s = window.end_s - window.begin_s,
          .compute_s = covered(compute, window),
          .communication_s = covered(collectives, window),
          .hidden_s = overlap(collectives, compute, window),
          .tokens = static_cast<double>(tokens_per_rank(simulation))};
}

/// Passes of the only loop inside a step that is worth cutting short; 0: there is none, or several.
std::int64_t long_loop(const std::vector<ProgramItem>& items) {
  std::int64_t passes = 0;
  for (const ProgramItem& item : items) {
    const std::int64_t own = item.count > 2 * kFewPasses ? item.count : 0;
    const std::int64_t inner = item.count == ProgramItem::kFirstStep ? 0 : long_loop(item.body);
    if ((own > 0 && inner > 0) || (passes > 0 && own + inner > 0)) return 0;
    passes = std::max({passes, own, inner});
  }
  return passes;
}

/// `more` with `times` as much on top as it has over `less`.
StepSums extrapolated(const StepSums& less, const StepSums& more, double times) {
  const auto further = [&](double StepSums::*sum) {
    return more.*sum + times * (more.*sum - less.*sum);
  };
  return {further(&StepSums::step_s), further(&StepSums::compute_s),
          further(&StepSums::communication_s), further(&StepSums::hidden_s),
          further(&StepSums::tokens)};
}

/// Events repeat once the passes of a loop do, so that a long loop need not be run to its end. One
/// whose passes go on to differ is; `sums_of_all` gives the sums then.
template <typename SumsOfAll>
StepSums steady_sums(const Plan& plan, const std::vector<InstructionCost>& costs,
                     SumsOfAll sums_of_all) {
  const auto sums = [&](std::int64_t passes) { return sums_of(run(plan, costs, passes)); };
  const std::int64_t passes = long_loop(plan.program);
  if (passes == 0) return sums_of_all();
  const StepSums least = sums(kFewPasses - 2);
  const StepSums less = sums(kFewPasses - 1);
  const StepSums more = sums(kFewPasses);
  const Seconds last = more.step_s - less.step_s;
  const Seconds before = less.step_s - least.step_s;
  if (std::abs(last - before) > kSame * last) return sums_of_all();
  return extrapolated(less, more, static_cast<double>(passes - kFewPasses));
}

/// Empty when a step takes no time.
std::optional<TimeReport> time_report(const Plan& plan, const StepSums& sums) {
  if (sums.step_s <= 0) return std::nullopt;
  TimeReport time;
  time.step_s = sums.step_s;
  time.compute_s = sums.compute_s;
  time.communication_s = sums.communication_s;
  time.exposed_communication_s = std::max(0.0, sums.communication_s - sums.hidden_s);
  time.tokens_per_s_per_gpu = sums.tokens / sums.step_s;
  time.tokens_per_s = time.tokens_per_s_per_gpu * static_cast<double>(plan.world_size());
  const double peak = peak_flops_per_s(plan);
  if (peak > 0 && plan.model_flops_per_token > 0)
    time.mfu = plan.model_flops_per_token * time.tokens_per_s_per_gpu / peak;
  if (plan.job.run.steps > 0) time.total_s = time.step_s * plan.job.run.steps;
  TimeRange range = time_range(plan);
  time.range_share = range.share;
  time.defaulted = std::move(range.defaulted);
  time.guess = std::move(range.why);
  return time;
}

std::optional<CostReport> cost_report(const Plan& plan, const std::optional<TimeReport>& time) {
  if (!plan.job.cluster.price_per_gpu_hour) return std::nullopt;
  CostReport cost;
  cost.per_hour = *plan.job.cluster.price_per_gpu_hour * static_cast<double>(plan.world_size());
  const double per_second = *cost.per_hour / kHour;
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

/// The steady step, its times counted from the first work. What takes no time the host may have
/// done before, while the step before was still computed.
std::vector<TimelineEntry> timeline(const Simulation& simulation) {
  const std::span<const InstructionId> step = simulation.steady_step();
  const std::size_t first = step.data() - simulation.order.ids.data();
  std::vector<TimelineEntry> entries;
  entries.reserve(step.size());
  Seconds origin = std::numeric_limits<Seconds>::max();
  for (std::size_t i = 0; i < step.size(); ++i) {
    const Interval interval = simulation.intervals[first + i];
    entries.push_back({step[i], interval.begin_s, interval.end_s});
    if (interval.end_s > interval.begin_s) origin = std::min(origin, interval.begin_s);
  }
  for (TimelineEntry& entry : entries) {
    entry.begin_s = std::max(0.0, entry.begin_s - origin);
    entry.end_s = std::max(0.0, entry.end_s - origin);
  }
  return entries;
}

}  // namespace

std::optional<TimeReport> simulate_time(const Plan& plan, const CostConstants& constants) {
  check_rates(plan.job.cluster);
  const std::vector<InstructionCost> costs = instruction_costs(plan, constants);
  return time_report(
      plan, steady_sums(plan, costs, [&] { return sums_of(run(plan, costs, kAllPasses)); }));
}

Report simulate(const Plan& plan, const CostConstants& constants, const SimulateOptions& options) {
  check_rates(plan.job.cluster);
  const std::vector<InstructionCost> costs = instruction_costs(plan, constants);
  Report report;
  report.world_size = plan.world_size();
  if (!has_allocator(plan.profile)) report.arena = plan.arena;
  add_memory(plan, constants, report);
  Simulation all = ordered(plan, costs, kAllPasses);
  add_communication(all, report);
  report.time = time_report(plan, steady_sums(plan, costs, [&] {
                              run(all);
                              return sums_of(all);
                            }));
  report.cost = cost_report(plan, report.time);
  if (options.timeline) {
    run(all);
    report.timeline = timeline(all);
  }
  return report;
}

}  // namespace shardplan
