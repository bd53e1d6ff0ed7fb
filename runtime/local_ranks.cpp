#include "runtime/local_ranks.h"

#include <chrono>
#include <exception>
#include <optional>

#include "runtime/start_thread.h"

namespace shardplan {
namespace {

JobData data_of(JobResources& resources, const Communicator& first) {
  JobData data = resources.data();
  data.reporting_rank = first.rank();
  return data;
}

}  // namespace

LocalRanks::LocalRanks(const Plan& plan, const Rank::Options& options,
                       std::optional<SafetensorsWriter::Open> open, const Checkpoint* checkpoint,
                       std::span<Communicator* const> ends)
    : plan_(plan),
      first_end_(*ends.front()),
      resources_(plan, open, checkpoint),
      data_(data_of(resources_, *ends.front())),
      failure_([this](const char* reason) { stop(reason); }),
      first_step_(checkpoint ? checkpoint->position().steps : 0) {
  Rank::Options own = options;
  for (Communicator* end : ends) {
    ranks_.push_back(std::make_unique<Rank>(plan, own, *end, data_, failure_));
    ++own.device.index;
  }
}

void LocalRanks::run(const std::function<void(const StepReport&)>& on_step) {
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
}

std::vector<StepReport> LocalRanks::steps() {
  const auto& steps = resources_.steps();
  return {steps.begin() + first_step_, steps.begin() + first_step_ + steps_done_};
}

void LocalRanks::stop(const char* reason) noexcept {
  for (const auto& rank : ranks_)
    rank->stop();
  first_end_.abort(reason);
}

/// Times the steps of the first rank and hands them on as they end.
void LocalRanks::follow_steps(const std::function<void(const StepReport&)>& on_step) {
  std::optional<std::chrono::steady_clock::time_point> begin;
  for (int step = first_step_; step < plan_.job.run.steps; ++step) {
    if (!ranks_.front()->wait_step(step)) return;
    const auto end = std::chrono::steady_clock::now();
    if (!begin) begin = ranks_.front()->first_step_begin();
    StepReport& report = resources_.steps()[step];
    report.seconds = std::chrono::duration<double>(end - *begin).count();
    begin = end;
    ++steps_done_;
    if (on_step) on_step(report);
  }
}

}  // namespace shardplan
