#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/job_flags.h"

namespace shardplan {

/// What the program's exit status says; see also InputError and SystemError.
constexpr int kYes = 0;
constexpr int kNo = 1;
constexpr int kWrongInput = 2;
constexpr int kMachineFailed = 3;

/// Each command prints its answer on standard output and returns its exit status. Throws
/// InputError and SystemError.

struct PlanOptions {
  JobFlags job;
  std::string output;  // plan.json to write; empty: none
  bool json = false;
};
/// kNo when the plan does not fit.
int plan_command(const PlanOptions& options);

struct CompareOptions {
  JobFlags job;
  std::vector<std::string> strategies;  // empty: the usual ones
  std::string tokens;                   // of the whole training; empty: not asked
  std::string require;                  // a strategy that must fit; empty: any
  bool json = false;
};
/// kNo when no strategy fits, or not the required one.
int compare_command(const CompareOptions& options);

struct FitOptions {
  JobFlags job;
  std::string maximize;                 // micro_batch, sequence_length or layers
  std::vector<std::string> strategies;  // empty: the usual ones
  bool json = false;
};
/// kNo when no strategy fits with the smallest.
int fit_command(const FitOptions& options);

struct SearchCommandOptions {
  JobFlags job;
  std::string objective = "time";       // cost, time or memory
  std::vector<std::string> available;   // GPU:COUNT[:PRICE]; empty: the job's GPUs
  std::vector<std::string> strategies;  // empty: the usual ones
  std::string global_batch;             // sequences of a step; empty: the job's micro-steps
  std::string tokens;                   // of the whole training; the others empty: not asked
  std::string budget;                   // dollars
  std::string deadline;                 // hours
  std::string memory;                   // GiB of a device
  bool json = false;
};
/// kNo when nothing fits within the limits.
int search_command(const SearchCommandOptions& options);

struct SimulateCommandOptions {
  JobFlags job;
  std::string trace;      // file to write; empty: none
  std::string tokens;     // of a whole training with failures; empty: not asked
  double gpu_mtbf_hours;  // these as Reliability has them
  double checkpoint_every_minutes = 0;
  double checkpoint_seconds;
  double restart_minutes;
  double jitter = 0;
  std::uint64_t seed = 0;
  bool json = false;

  SimulateCommandOptions();  // with the usual reliability
};
/// kNo when the plan does not fit.
int simulate_command(const SimulateCommandOptions& options);

struct RunOptions {
  JobFlags job;
  std::string device = "cpu";
  bool processes = false;  // starts a process for each rank; else ranks are threads
  std::string resume;      // "auto", or the path of a checkpoint; empty: from the beginning
  std::string rehearse;    // "5/512": that rank alone, of so many; empty: all ranks
  bool dry_run = false;    // connects the ranks and does one collective of each kind only
  double timeout_s = 60;   // that a rank waits for others in a collective
  bool json_lines = false;
  bool json = false;
};
/// kNo when the ranks need more memory than the machine has.
int run_command(const RunOptions& options);

struct CheckOptions {
  std::string plan;      // a plan, a job or a prediction
  std::string measured;  // a measurement
  std::string baseline;  // an older measurement; empty: none
  std::string tolerance = "3%";
  std::string time_tolerance;        // empty: time is not compared
  std::string one_sided;             // "over", "under"; empty: both sides fail
  std::vector<std::string> metrics;  // empty: all
  std::string junit;                 // file to write; empty: none
  bool exact = false;
  bool json = false;
};
/// kNo when a metric leaves its tolerance.
int check_command(const CheckOptions& options);

struct ImportCommandOptions {
  std::string tool;    // accelerate, deepspeed or hf
  JobFlags job;        // its path is the other tool's file
  std::string output;  // job file to write; empty: standard output
  bool json = false;
};
/// Prints the job that another tool's file describes; what the tool ignores goes to standard error.
int import_command(const ImportCommandOptions& options);

struct ReportOptions {
  std::string prediction;  // a prediction, a plan or a job
  std::string measured;    // a measurement with the times of instructions, such as run.json
  bool json = false;
};
/// Prediction and measurement side by side, by phase and unit.
int report_command(const ReportOptions& options);

struct ScoreOptions {
  std::string table;  // CSV
  std::string svg;    // picture to write; empty: none
  bool json = false;
};
/// Predicts what others have measured, and tells how far off that is.
int score_command(const ScoreOptions& options);

struct CalibrateOptions {
  std::string table;       // CSV; empty: this machine is measured
  bool leave_out = false;  // fits again without each family, and predicts it by that
  std::string ranks;       // of this machine; empty: one for each core
  std::string output;      // YAML to write what they sustain to; empty: standard output
};
/// Fits the constants of the time model to published measurements, and tells how well; or measures
/// what CPU ranks of this machine sustain.
int calibrate_command(const CalibrateOptions& options);

struct VerifyOptions {
  std::string plan;
  bool json = false;
};
/// kNo when the plan has a fault.
int verify_command(const VerifyOptions& options);

}  // namespace shardplan
