#include "runtime/executor.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <thread>

#include "runtime/comm/messages.h"
#include "runtime/comm/process_communicator.h"
#include "runtime/comm/rehearsal_communicator.h"
#include "runtime/comm/thread_communicator.h"
#include "runtime/device_kind.h"
#include "runtime/executable.h"
#include "runtime/local_ranks.h"
#include "runtime/optimizer_state.h"

namespace shardplan {
namespace {

std::optional<TimeReport> time_of(const Plan& plan, const std::vector<StepReport>& steps) {
  const std::optional<Seconds> steady = steady_step_seconds(steps);
  if (!steady) return {};
  TimeReport time;
  time.step_s = *steady;
  time.total_s = 0;
  for (const StepReport& step : steps)
    *time.total_s += step.seconds;
  if (time.step_s > 0)
    time.tokens_per_s = static_cast<double>(tokens_per_step(plan.job)) / time.step_s;
  time.tokens_per_s_per_gpu = time.tokens_per_s / static_cast<double>(plan.world_size());
  return time;
}

const DeviceKind& kind_of(const ExecuteOptions& options) {
  return options.device ? *options.device : cpu_devices();
}

/// The ranks of this machine share its cores, as far as OMP_NUM_THREADS, as everywhere the threads
/// of a rank, and the cores that this process may use allow.
Rank::Options rank_options(const Plan& plan, const ExecuteOptions& options,
                           std::int64_t ranks_here) {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const auto share =
      static_cast<int>(std::clamp<std::int64_t>(cores / ranks_here, 1, omp_get_max_threads()));
  return {
      .kind = &kind_of(options),
      .device = {.profile = plan.profile,
                 .compute_threads = options.threads_per_rank > 0 ? options.threads_per_rank : share,
                 .timeout_s = options.collective_timeout_s},
      .measure_memory = options.measure_memory,
      .checkpoint_every = plan.job.run.checkpoint_every,
      .before_instruction = options.before_instruction,
      .stop_requested = options.stop_requested};
}

/// Who chose it has compared its checksums.
std::optional<Checkpoint> checkpoint_of(const Plan& plan, const ExecuteOptions& options) {
  if (options.resume.empty()) return std::nullopt;
  std::optional<Checkpoint> checkpoint(std::in_place, options.resume, Checkpoint::Verify::Sizes);
  checkpoint->expect_state_of(plan);
  return checkpoint;
}

Report report_of(const Plan& plan, LocalRanks& ranks) {
  Report report;
  report.plan_hash = hash_of(plan);
  report.world_size = plan.world_size();
  report.steps = ranks.steps();
  report.time = time_of(plan, report.steps);
  report.instructions = ranks.rank(0).instruction_times();
  return report;
}

/// What every rank of other processes measured.
void add_ranks_of_all(const Plan& plan, Report& report, Communicator& own) {
  std::vector<RankReport> all;
  Report memory;  // nothing else of the others is of interest
  memory.plan_hash = report.plan_hash;
  memory.world_size = report.world_size;
  memory.ranks = report.ranks;
  for (const std::string& text : gather_texts(own, measurement_json(memory, plan)))
    for (RankReport& rank : report_from_json(text, "measurement of a rank").ranks)
      all.push_back(std::move(rank));
  report.ranks = std::move(all);
}

/// All ranks ask for the same parts in the same order, so whoever holds one sends it to all.
std::map<std::string, std::vector<float>> optimizer_state_of_all(const Plan& plan,
                                                                 Communicator& own,
                                                                 const Rank& rank) {
  std::vector<float> part;
  return collect_optimizer_state(plan, [&](std::int64_t holder, const View& view) {
    part.resize(static_cast<std::size_t>(view.elems));
    if (holder == own.rank()) std::ranges::copy(rank.values(view), part.begin());
    own.broadcast(Stream::Host, Group::World, std::as_writable_bytes(std::span(part)),
                  static_cast<int>(holder));
    return std::span<const float>(part);
  });
}

Report execute_rank(const Plan& plan, const ExecuteOptions& options, const ProcessPlace& place,
                    Communicator& own) {
  const bool makes_files = place.rank == 0;
  const auto checkpoint = checkpoint_of(plan, options);
  if (!makes_files) barrier(own);  // until rank 0 has made the files
  Communicator* const end = &own;
  Rank::Options one = rank_options(plan, options, place.local_size);
  one.device.index = static_cast<int>(place.rank % place.local_size);  // ranks of a node in a row
  LocalRanks ranks(plan, one,
                   makes_files ? SafetensorsWriter::Open::Create : SafetensorsWriter::Open::Join,
                   checkpoint ? &*checkpoint : nullptr, std::span(&end, 1));
  if (makes_files) barrier(own);
  ranks.run(makes_files ? options.on_step : nullptr);
  if (!makes_files) ranks.commit();
  Report report = report_of(plan, ranks);
  report.ranks.push_back({std::to_string(place.rank), ranks.rank(0).memory()});
  add_ranks_of_all(plan, report, own);
  if (options.optimizer_state)
    *options.optimizer_state = optimizer_state_of_all(plan, own, ranks.rank(0));
  if (makes_files) ranks.commit();
  return report;
}

}  // namespace

Report execute(const Plan& plan, const ExecuteOptions& options) {
  expect_executable(plan, kind_of(options));
  expect_place(plan, plan.world_size(), kind_of(options));
  ThreadWorld world(plan.mesh, options.collective_timeout_s);
  std::vector<Communicator*> ends;
  for (std::int64_t rank = 0; rank < plan.world_size(); ++rank)
    ends.push_back(&world.at(rank));
  const auto checkpoint = checkpoint_of(plan, options);
  LocalRanks ranks(plan, rank_options(plan, options, plan.world_size()),
                   SafetensorsWriter::Open::Create, checkpoint ? &*checkpoint : nullptr, ends);
  ranks.run(options.on_step);
  ranks.commit();
  Report report = report_of(plan, ranks);
  for (std::int64_t rank = 0; rank < plan.world_size(); ++rank)
    report.ranks.push_back({std::to_string(rank), ranks.rank(rank).memory()});
  if (options.optimizer_state)
    *options.optimizer_state = collect_optimizer_state(
        plan, [&](std::int64_t rank, const View& view) { return ranks.rank(rank).values(view); });
  return report;
}

Report rehearse(const Plan& plan, const ExecuteOptions& options, std::int64_t rank) {
  expect_executable(plan, kind_of(options));
  expect_place(plan, 1, kind_of(options));
  RehearsalCommunicator own(plan.mesh, rank);
  Communicator* const end = &own;
  Rank::Options alone = rank_options(plan, options, 1);
  alone.checkpoint_every = 0;
  alone.device.alone = true;
  LocalRanks ranks(plan, alone, std::nullopt, nullptr, std::span(&end, 1));
  ranks.run(options.on_step);
  Report report = report_of(plan, ranks);
  report.ranks.push_back({std::to_string(rank), ranks.rank(0).memory()});
  report.rehearsal = std::to_string(rank) + "/" + std::to_string(plan.world_size());
  return report;
}

Report execute(const Plan& plan, const ExecuteOptions& options, ProcessWorld& world) {
  const std::vector<Stream> streams = streams_with_collectives(plan);
  const auto own = world.communicator(plan.mesh, streams);
  try {
    expect_executable(plan, kind_of(options));
    expect_place(plan, world.place().local_size, kind_of(options));
    return execute_rank(plan, options, world.place(), *own);
  } catch (const std::exception& error) {
    own->abort(error.what());
    throw;
  }
}

}  // namespace shardplan
