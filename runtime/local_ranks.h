#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "runtime/comm/communicator.h"
#include "runtime/job_failure.h"
#include "runtime/job_resources.h"
#include "runtime/rank.h"

namespace shardplan {

/// The ranks of a job that run in this process, each with its threads.
class LocalRanks {
 public:
  /// `ends`: a communicator for each of them; all must outlive this. Throws as JobResources and
  /// Rank do.
  LocalRanks(const Plan& plan, const Rank::Options& options,
             std::optional<SafetensorsWriter::Open> open, const Checkpoint* checkpoint,
             std::span<Communicator* const> ends);

  /// Runs to the end. Rethrows the first error of a rank, or of `on_step`, which is called after
  /// every step of the first rank.
  void run(const std::function<void(const StepReport&)>& on_step);
  /// See JobResources. Ranks that stopped early leave no weights.
  void commit() {
    if (!ranks_.front()->stopped_early()) resources_.commit();
  }

  /// After run(): the steps that are done, as the first rank saw them.
  std::vector<StepReport> steps();
  const Rank& rank(std::size_t i) const { return *ranks_[i]; }

 private:
  void stop(const char* reason) noexcept;
  void follow_steps(const std::function<void(const StepReport&)>& on_step);

  const Plan& plan_;
  Communicator& first_end_;
  JobResources resources_;
  const JobData data_;
  JobFailure failure_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::thread> threads_;
  const int first_step_;
  int steps_done_ = 0;  // from the first on
};

}  // namespace shardplan
