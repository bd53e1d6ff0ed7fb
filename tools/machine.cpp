#include "tools/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <thread>
#include <variant>
#include <vector>

#include "planner/cost/compute.h"
#include "plans/operators.h"
#include "runtime/dry_run.h"
#include "runtime/executor.h"
#include "tools/documents.h"

namespace shardplan {
namespace {

constexpr int kSteps = 12;
constexpr int kCollectiveRepeats = 15;

/// What ranks write, for as long as this lives.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() / fmt::format("shardplan.{}", getpid())) {}
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// A model whose units are of a size, trained on the tokens that come with the program.
Plan plan_of(const char* model, int ranks, const std::string& output, const Hardware& hardware) {
  const JobFlags flags{
      .settings = {fmt::format("model.preset={}", model), "cluster.gpu=cpu",
                   "strategy.sharding=FULL_SHARD", "training.micro_batch=2",
                   "training.sequence_length=256", fmt::format("cluster.gpus_per_node={}", ranks),
                   fmt::format("run.steps={}", kSteps),
                   fmt::format("run.tokens='{}/jobs/quickstart_tokens.bin'", data_folder()),
                   fmt::format("run.output='{}'", output)},
      .use = JobUse::Run};
  return verified_plan(load_job(flags, hardware));
}

/// Amount of work and the time that it took.
struct Work {
  double amount = 0;
  Seconds seconds = 0;

  void add(double more, Seconds taken) {
    amount += more;
    seconds += std::max(0.0, taken);
  }
  double rate() const { return amount / seconds; }
};

/// FLOP/s of the products and bytes/s of the element-wise kernels of a run's first rank. Attention
/// is left out: its rate is a share of the products' by the catalogue.
void set_compute_rates(MachineRates& rates, const Plan& plan, const Report& measured,
                       const CostConstants& costs) {
  std::map<std::string, Seconds> seconds;
  for (const InstructionTime& one : measured.instructions)
    seconds[one.name] = one.seconds - costs.kernel_latency_s;
  Work products;
  Work element_wise;
  for (const Instruction& instruction : plan.instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.operation);
    const auto taken = seconds.find(instruction.name);
    if (compute == nullptr || taken == seconds.end() || is_attention(compute->kernel)) continue;
    if (is_matrix_product(compute->kernel))
      products.add(flops_of(compute->kernel, compute->attributes), taken->second);
    else
      element_wise.add(static_cast<double>(bytes_moved(plan, instruction)), taken->second);
  }
  rates.matmul_flops_per_s = products.rate();
  rates.memory_bytes_per_s = element_wise.rate();
}

/// Collectives one after another: bytes over each link, and the time.
struct Collectives : Work {
  int count = 0;
};

/// Those of a plan, by the median of the time.
Collectives collectives_of(const Plan& plan) {
  std::vector<Collectives> repeats(kCollectiveRepeats);
  for (Collectives& all : repeats)
    for (const CollectiveTime& one : time_collectives(plan, {})) {
      all.add(one.bus_bytes_per_s * one.seconds, one.seconds);
      ++all.count;
    }
  const auto middle = repeats.begin() + kCollectiveRepeats / 2;
  std::ranges::nth_element(repeats, middle, {}, &Collectives::seconds);
  return *middle;
}

/// A line through the times of a small and a large unit: what each byte takes, and what is left of
/// the small one is latency.
void set_link_rates(MachineRates& rates, const Plan& small_plan, const Plan& large_plan,
                    const CostConstants& costs) {
  const Collectives small = collectives_of(small_plan);
  const Collectives large = collectives_of(large_plan);
  rates.link_bytes_per_s = std::clamp(
      (large.amount - small.amount) / std::max(large.seconds - small.seconds, 1e-9), 1e8, 1e12);
  const Seconds latency = (small.seconds - small.amount / rates.link_bytes_per_s) / small.count;
  rates.hop_s = std::max(0.0, latency - costs.collective_latency_s) / (rates.ranks - 1);
}

}  // namespace

MachineRates measure_machine(int ranks, const Hardware& hardware,
                             const std::function<void(int, int)>& on_step) {
  const TemporaryFolder folder;
  const Plan plan = plan_of("llama-20m", ranks, folder.path(), hardware);
  const CostConstants& costs = hardware.costs(plan.profile);
  const Report measured = execute(
      plan, {.measure_memory = false,
             .on_step = [&](const StepReport& step) { on_step(step.step, plan.job.run.steps); }});
  MachineRates rates{.ranks = ranks};
  set_compute_rates(rates, plan, measured, costs);
  const MachineFit fit = fit_on_this_machine(plan, ranks);
  rates.memory_bytes = fit.available.value_or(fit.needed) / ranks;
  rates.link_bytes_per_s = rates.memory_bytes_per_s;
  if (ranks > 1)
    set_link_rates(rates, plan_of("llama-tiny", ranks, folder.path(), hardware), plan, costs);
  return rates;
}

std::string cluster_yaml(const MachineRates& rates) {
  return fmt::format(
      "# What one of {0} CPU ranks on a machine of {1} cores sustains; written by `shardplan\n"
      "# calibrate --ranks {0}` there. shardplan simulate job.yaml --cluster THIS_FILE\n"
      "gpu:\n"
      "  name: one of {0} CPU ranks of this machine\n"
      "  memory_bytes: {2}\n"
      "  memory_bandwidth_bytes_per_s: {3:.4g}\n"
      "  matmul_flops_fp32: {4:.4g}\n"
      "  link_bytes_per_s: {5:.4g}\n"
      "  pcie_bytes_per_s: {3:.4g}\n"
      "  node_type: cpu-host\n"
      "  max_gpus_per_node: {0}\n"
      "  source: measured by shardplan calibrate\n"
      "network: {{intra_node_latency_s: {6:.3g}}}\n"
      "gpus_per_node: {0}\n",
      rates.ranks, std::thread::hardware_concurrency(), rates.memory_bytes,
      rates.memory_bytes_per_s, rates.matmul_flops_per_s, rates.link_bytes_per_s, rates.hop_s);
}

}  // namespace shardplan
