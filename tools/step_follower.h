#pragma once

#include <memory>
#include <string>

#include "plans/plan.h"
#include "plans/report.h"
#include "tools/commands.h"
#include "tools/output_files.h"
#include "tools/progress_bar.h"

namespace shardplan {

/// Whether a run talks to people, and not in JSON.
bool is_for_people(const RunOptions& options);

/// The same NaN without a sign, which means nothing and is printed all the same.
double unsigned_nan(double value);

/// What happens while the ranks train: metrics.jsonl, and what the user sees. The file of a job
/// that goes on keeps the lines of the steps before. Both arguments must outlive this.
class StepFollower {
 public:
  StepFollower(const Plan& plan, const RunOptions& options);

  void on_step(const StepReport& step);
  void finish();

 private:
  void open_metrics(int first_step);
  void print_line(const StepReport& step, std::int64_t tokens);

  const Plan& plan_;
  const RunOptions& options_;
  ProgressBar bar_;
  std::unique_ptr<LineFile> metrics_;
};

}  // namespace shardplan
