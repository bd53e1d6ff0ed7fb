#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include "plans/error.h"
#include "runtime/comm/thread_communicator.h"
#include "runtime/cpu_kernels.h"
#include "runtime/host_memory.h"
#include "runtime/optimizer_state.h"
#include "runtime/rank.h"
#include "runtime/start_thread.h"

namespace shardplan {
namespace {

constexpr std::array<std::string_view, 3> kScalars{"learning_rate", "bias_correction1",
                                                   "bias_correction2"};

/// What can be planned but not executed is refused by name.
void expect_kernel(const Plan& plan, const Instruction& instruction) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(
        fmt::format("'{}': {}; the plan can be simulated, not run", instruction.name, why));
  };
  if (const auto* compute = std::get_if<Compute>(&instruction.operation)) {
    const std::string missing = cpu::missing_kernel(compute->kernel, compute->attributes);
    if (!missing.empty()) refuse(fmt::format("there is no CPU kernel for {} yet", missing));
  }
  const auto* read = std::get_if<Read>(&instruction.operation);
  if (read == nullptr || read->source == Source::Weights) return;
  const TrainingJob& training = plan.job.training;
  const bool per_token =
      !instruction.writes.empty() &&
      instruction.writes[0].elems == training.micro_batch * training.sequence_length;
  if (read->source == Source::Input || !per_token)
    refuse("runs read tokens and one target for each only");
}

void expect_executable(const Plan& plan) {
  if (!is_cpu(plan.profile))
    throw InputError(
        fmt::format("the plan was made for profile {}; re-plan with profile cpu-onednn or "
                    "cpu-reference to run it on CPU ranks",
                    to_string(plan.profile)));
  for (const Buffer& buffer : plan.buffers)
    if (buffer.space != Space::Device)
      throw InputError(
          fmt::format("buffer '{}' lies in {} memory, CPU ranks have device memory only",
                      buffer.name, to_string(buffer.space)));
  for (const Instruction& instruction : plan.instructions)
    expect_kernel(plan, instruction);
  for (const std::string& name : plan.scalars)
    if (std::ranges::find(kScalars, name) == kScalars.end())
      throw InputError(fmt::format("scalar '{}' is not known, expected one of {}", name,
                                   fmt::join(kScalars, ", ")));
}

/// A machine that runs out of memory kills at random; better to say so before.
void expect_memory(const Plan& plan) {
  const MachineFit fit = fit_on_this_machine(plan);
  if (!fit.fits())
    throw SystemError(
        fmt::format("{} ranks need {} together, this machine has {} of memory available",
                    plan.world_size(), format_bytes(fit.needed), format_bytes(*fit.available)));
}

cpu::Gemm gemm_of(Profile profile) {
  return profile == Profile::CpuReference ? cpu::gemm_reference : cpu::gemm_onednn;
}

template <typename Kind, typename Predicate>
bool any_instruction(const Plan& plan, Predicate predicate) {
  return std::ranges::any_of(plan.instructions, [&](const Instruction& instruction) {
    const auto* operation = std::get_if<Kind>(&instruction.operation);
    return operation && predicate(*operation);
  });
}

/// At least one entry, for instructions outside the steps.
std::vector<StepScalars> scalars_of(const Job& job) {
  const OptimizerJob& optimizer = job.training.optimizer;
  std::vector<StepScalars> scalars(std::max(job.run.steps, 1));
  for (int step = 0; step < static_cast<int>(scalars.size()); ++step)
    scalars[step] = {learning_rate(optimizer, job.training.schedule, step, job.run.steps),
                     1 - std::pow(optimizer.beta1, step + 1),
                     1 - std::pow(optimizer.beta2, step + 1)};
  return scalars;
}

/// Files and values that the ranks share, made as the plan needs them.
struct Resources {
  explicit Resources(const Plan& plan) : scalars(scalars_of(plan.job)), steps(scalars.size()) {
    for (std::size_t step = 0; step < steps.size(); ++step) {
      steps[step].step = static_cast<int>(step) + 1;
      steps[step].learning_rate = scalars[step].learning_rate;
    }
    if (any_instruction<Read>(plan, [](Read read) { return read.source != Source::Weights; }))
      batches.emplace(plan);
    if (any_instruction<Read>(plan, [](Read read) { return read.source == Source::Weights; }))
      weight_source.emplace(plan);
    if (any_instruction<Write>(plan, [](Write write) { return write.sink == Sink::Weights; }))
      weight_sink.emplace(plan);
  }

  JobData data() {
    return {.batches = batches ? &*batches : nullptr,
            .weight_source = weight_source ? &*weight_source : nullptr,
            .weight_sink = weight_sink ? &*weight_sink : nullptr,
            .scalars = scalars,
            .steps = steps};
  }

  std::vector<StepScalars> scalars;
  std::vector<StepReport> steps;
  std::optional<Batches> batches;
  std::optional<WeightSource> weight_source;
  std::optional<WeightSink> weight_sink;
};

/// The ranks of a job as threads of this process.
class ThreadJob {
 public:
  ThreadJob(const Plan& plan, const ExecuteOptions& options)
      : plan_(plan),
        resources_(plan),
        data_(resources_.data()),
        world_(plan.mesh, options.collective_timeout_s),
        failure_([this](const char* reason) { stop(reason); }) {
    const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
    const auto share = static_cast<int>(std::max<std::int64_t>(1, cores / plan.world_size()));
    const Rank::Options rank_options{
        .gemm = gemm_of(plan.profile),
        .compute_threads = options.threads_per_rank > 0 ? options.threads_per_rank : share,
        .measure_memory = options.measure_memory};
    for (std::int64_t rank = 0; rank < plan.world_size(); ++rank)
      ranks_.push_back(
          std::make_unique<Rank>(plan, rank_options, world_.at(rank), data_, failure_));
  }

  /// Runs to the end. Rethrows the first error of a rank, or of `on_step`.
  void run(const std::function<void(const StepReport&)>& on_step) {
    std::exception_ptr error;
    try {
      for (const auto& rank : ranks_)
        threads_.push_back(start_thread([&rank] { rank->run(); }));
      follow_steps(on_step);
    } catch (...) {
      error = std::current_exception();
      stop("the job was given up");
    }
    for (std::thread& thread : threads_)
      thread.join();
    if (error) std::rethrow_exception(error);
    failure_.rethrow();
    if (resources_.weight_sink) resources_.weight_sink->commit();
  }

  std::vector<StepReport> steps() const {
    return {resources_.steps.begin(), resources_.steps.begin() + steps_done_};
  }
  const RankMemory& memory(std::int64_t rank) const { return ranks_[rank]->memory(); }
  std::map<std::string, std::vector<float>> optimizer_state() const {
    return collect_optimizer_state(
        plan_, [&](std::int64_t rank, const View& view) { return ranks_[rank]->values(view); });
  }

 private:
  void stop(const char* reason) noexcept {
    for (const auto& rank : ranks_)
      rank->stop();
    world_.abort(reason);
  }

  /// Times the steps of rank 0 and hands them on as they end.
  void follow_steps(const std::function<void(const StepReport&)>& on_step) {
    std::optional<std::chrono::steady_clock::time_point> begin;
    for (int step = 0; step < plan_.job.run.steps; ++step) {
      if (!ranks_.front()->wait_step(step)) return;
      const auto end = std::chrono::steady_clock::now();
      if (!begin) begin = ranks_.front()->first_step_begin();
      StepReport& report = resources_.steps[step];
      report.seconds = std::chrono::duration<double>(end - *begin).count();
      begin = end;
      ++steps_done_;
      if (on_step) on_step(report);
    }
  }

  const Plan& plan_;
  Resources resources_;
  const JobData data_;
  ThreadWorld world_;
  JobFailure failure_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::thread> threads_;
  int steps_done_ = 0;
};

std::optional<TimeReport> time_of(const Plan& plan, const std::vector<StepReport>& steps) {
  const std::optional<Seconds> steady = steady_step_seconds(steps);
  if (!steady) return {};
  TimeReport time;
  time.step_s = *steady;
  time.total_s = 0;
  for (const StepReport& step : steps)
    *time.total_s += step.seconds;
  const TrainingJob& training = plan.job.training;
  const std::int64_t tokens = training.micro_batch * training.sequence_length *
                              std::max<std::int64_t>(1, micro_steps_of(plan));
  if (time.step_s > 0) time.tokens_per_s_per_gpu = static_cast<double>(tokens) / time.step_s;
  time.tokens_per_s = time.tokens_per_s_per_gpu * static_cast<double>(plan.world_size());
  return time;
}

}  // namespace

MachineFit fit_on_this_machine(const Plan& plan) {
  constexpr Bytes kMost = std::numeric_limits<Bytes>::max();
  const bool countable = plan.arena.bytes <= kMost / plan.world_size();
  return {countable ? plan.arena.bytes * plan.world_size() : kMost, available_memory_bytes()};
}

Report execute(const Plan& plan, const ExecuteOptions& options) {
  expect_executable(plan);
  expect_memory(plan);
  Report report;
  report.plan_hash = hash_of(plan);
  report.world_size = plan.world_size();
  ThreadJob job(plan, options);
  job.run(options.on_step);
  report.steps = job.steps();
  for (std::int64_t rank = 0; rank < plan.world_size(); ++rank)
    report.ranks.push_back({std::to_string(rank), job.memory(rank)});
  if (options.optimizer_state) *options.optimizer_state = job.optimizer_state();
  report.time = time_of(plan, report.steps);
  return report;
}

}  // namespace shardplan
