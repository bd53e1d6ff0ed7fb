#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plans/plan.h"
#include "plans/run_phases.h"

namespace shardplan {

/// Bytes by Category; a category without a value is not known.
using CategoryBytes = std::array<std::optional<Bytes>, kCategories>;

struct PhaseMemory {
  std::optional<Bytes> peak_bytes;  // no value: no such phase, or not known
  std::optional<Bytes> end_bytes;
  std::string at;  // instruction of the peak
  CategoryBytes at_peak;
};

struct RankMemory {
  std::optional<Bytes> peak_allocated_bytes;
  std::optional<Bytes> peak_reserved_bytes;
  std::optional<Bytes> peak_device_bytes;
  std::optional<Bytes> resident_set_bytes;
  std::string peak_phase;
  std::string peak_at;  // instruction name
  CategoryBytes at_peak;
  std::optional<Bytes> device_context_bytes;
  std::optional<Bytes> communicator_bytes;
  std::optional<Bytes> library_workspace_bytes;
  std::optional<Bytes> host_bytes;
  std::array<PhaseMemory, kRunPhases> phases;  // by RunPhase
};

struct RankReport {
  std::string ranks;  // "0-7"
  RankMemory memory;
  std::optional<Bytes> owned_parameters_bytes = {};  // of each of them, without padding
};

struct CollectiveReport {
  std::string kind;
  std::string phase;
  std::string unit;
  Dtype dtype = Dtype::Float32;
  Bytes input_bytes = 0;
  Bytes output_bytes = 0;
  std::int64_t group_size = 1;
};

struct TimeReport {
  Seconds step_s = 0;
  double tokens_per_s = 0;
  double tokens_per_s_per_gpu = 0;
  std::optional<double> mfu;
  Seconds compute_s = 0;
  Seconds communication_s = 0;
  Seconds exposed_communication_s = 0;
  std::optional<Seconds> total_s;
  std::optional<double> range_share;   // all times from t / (1 + share) to t x (1 + share)
  std::vector<std::string> defaulted;  // fields that decide about it and have their default
  std::string guess;                   // why it is no more than one; empty: it is
};

struct CostReport {
  std::optional<double> per_hour;            // USD
  std::optional<double> per_billion_tokens;  // USD
  std::optional<double> total;               // USD
};

struct StepReport {
  int step = 0;  // from 1
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  Seconds seconds = 0;
};

/// What one instruction of a rank took in a step.
struct InstructionTime {
  std::string name;
  Seconds seconds = 0;  // of all its executions; of a collective with waiting for the other ranks
  Bytes bytes = 0;      // that its operands span, in one execution
};

/// One instruction's place in time, for traces.
struct TimelineEntry {
  InstructionId id = -1;
  Seconds begin_s = 0;
  Seconds end_s = 0;
};

/// The median of the known durations after the first, which warms caches up and measures memory;
/// nothing when none is known.
std::optional<Seconds> steady_step_seconds(const std::vector<StepReport>& steps);

/// What a simulation predicts or a run measured; absent values are not known, never 0. A number of
/// seconds, a rate, a loss or a norm that is not known is NaN.
struct Report {
  std::string plan_hash;
  std::int64_t world_size = 0;
  std::vector<RankReport> ranks;
  std::optional<bool> fits;
  std::optional<Bytes> limit_bytes;
  std::string limit_from;
  std::optional<ArenaSize> arena;
  std::vector<CollectiveReport> collectives;  // of one step
  std::optional<Bytes> bytes_sent_per_rank;   // in one step
  std::optional<TimeReport> time;
  std::optional<CostReport> cost;
  std::vector<StepReport> steps;
  std::vector<InstructionTime> instructions;  // of a measurement's first rank, per step
  std::string rehearsal;                // "5/512": that rank alone was there, numbers mean nothing
  std::vector<TimelineEntry> timeline;  // of one steady step; not part of the JSON
};

/// schema shardplan/prediction/1, with the fully resolved job and the model's counts. The hash is
/// made here when the report has none.
std::string prediction_json(const Report& report, const Plan& plan);
/// schema shardplan/comparison/1: one prediction a row.
std::string comparison_json(const std::vector<std::pair<const Report*, const Plan*>>& rows);
/// schema shardplan/measurement/1, with the fully resolved job.
std::string measurement_json(const Report& report, const Plan& plan);
/// Reads a prediction or a measurement, whoever wrote it; fields may be missing. Throws InputError.
Report report_from_json(std::string_view text, const std::string& source);

}  // namespace shardplan
