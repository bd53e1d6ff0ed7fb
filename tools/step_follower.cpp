#include "tools/step_follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "tools/answers_json.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

/// Of a long run, only so many steps get a line of their own where there is no terminal.
constexpr int kMostLines = 50;

std::string rate_of(const StepReport& step, std::int64_t tokens) {
  return step.seconds > 0 ? rate_text(static_cast<double>(tokens) / step.seconds) : "";
}

/// The step of a line that step_json() made; 0 for any other.
int step_of(std::string_view line) {
  constexpr std::string_view kBegin = "{\"step\":";
  int step = 0;
  if (line.starts_with(kBegin))
    std::from_chars(line.data() + kBegin.size(), line.data() + line.size(), step);
  return step;
}

/// The lines of the steps before `first_step`, of a file that may not be there.
std::vector<std::string> lines_before(int first_step, const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const int step = step_of(line); step > 0 && step < first_step) lines.push_back(line);
  return lines;
}

}  // namespace

bool is_for_people(const RunOptions& options) { return !options.json && !options.json_lines; }

double unsigned_nan(double value) { return std::isnan(value) ? std::fabs(value) : value; }

StepFollower::StepFollower(const Plan& plan, const RunOptions& options)
    : plan_(plan), options_(options), bar_("Training", plan.job.run.steps) {}

void StepFollower::on_step(const StepReport& step) {
  const std::int64_t tokens = tokens_per_step(plan_.job);
  const std::string json = step_json(step, tokens);
  // Made now and not before, so that a job that fails at once leaves nothing behind.
  if (!metrics_) open_metrics(step.step);
  metrics_->add(json);
  if (options_.json_lines) {
    fmt::print("{}\n", json);
    std::fflush(stdout);
  } else if (!options_.json && !is_terminal(stdout)) {
    print_line(step, tokens);
  }
  bar_.show(step.step,
            fmt::format("loss {:.4f}  {}", unsigned_nan(step.loss), rate_of(step, tokens)));
}

void StepFollower::finish() {
  if (metrics_) metrics_->finish();
}

void StepFollower::open_metrics(int first_step) {
  make_folder(plan_.job.run.output);
  const std::string path = (std::filesystem::path(plan_.job.run.output) / "metrics.jsonl").string();
  std::vector<std::string> kept = lines_before(first_step, LineFile::partial_path(path));
  if (kept.empty()) kept = lines_before(first_step, path);
  metrics_ = std::make_unique<LineFile>(path);
  for (const std::string& line : kept)
    metrics_->add(line);
}

void StepFollower::print_line(const StepReport& step, std::int64_t tokens) {
  const int steps = plan_.job.run.steps;
  const int stride = std::max(1, steps / kMostLines);
  if (step.step != 1 && step.step != steps && step.step % stride != 0) return;
  fmt::print("step {}/{}  loss {:.4f}  gradient norm {:.4f}  learning rate {:.3g}  {}  {}\n",
             step.step, steps, unsigned_nan(step.loss), unsigned_nan(step.grad_norm),
             step.learning_rate, format_seconds(step.seconds), rate_of(step, tokens));
  std::fflush(stdout);
}

}  // namespace shardplan
