#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "plans/hardware.h"
#include "plans/job.h"
#include "plans/model_graph.h"
#include "plans/plan.h"
#include "tools/csv_table.h"
#include "tools/frameworks.h"

namespace shardplan {

/// A row of published measurements cannot become a job: what() says why.
class NotExpressed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In `assumed` of a row that leaves the checkpointing open and whose framework has no usual one.
constexpr std::string_view kUnknownCheckpointing = "activation checkpointing";
/// Likewise, of a row that leaves the strategy open, and of one that computes attention in parts.
constexpr std::string_view kUnknownStrategy = "strategy";
constexpr std::string_view kFusedAttention = "fused attention";
/// Likewise, of one that moves more to the host than the job does.
constexpr std::string_view kPartsOnDevice = "parts that stay on the device";

/// The training that a row of published measurements describes.
struct PublishedJob {
  Job job;
  ModelGraph model;
  torch::Setup process;              // where PyTorch's loss is, and how it is computed
  std::vector<std::string> assumed;  // what the row does not say and its speed depends on
};

/// Reads a row with the columns of the published tables: gpu_key, framework, layers, d_model, ...;
/// empty cells are not stated. Throws NotExpressed.
PublishedJob published_job(const CsvRow& row, const std::vector<Framework>& frameworks,
                           const Hardware& hardware);

/// What such a row's training becomes. Throws NotExpressed, also for what the planner does not
/// support.
struct PublishedPlan {
  Plan plan;
  std::vector<std::string> assumed;  // as in PublishedJob

  /// Whether `what` is among them.
  bool leaves_open(std::string_view what) const;
  /// Whether constants may be fitted to its speed: all parameters are trained, by products of 8
  /// bits or more, and what decides about the speed is known. The others are extrapolations.
  bool tells_constants() const;
};
PublishedPlan published_plan(const CsvRow& row, const std::vector<Framework>& frameworks,
                             const Hardware& hardware);

/// The content of a cell; empty when the table has no such column.
std::string cell_of(const CsvRow& row, const std::string& column);
/// The number in a cell; 0 when it holds none.
double number_of(const CsvRow& row, const std::string& column);
/// The stated figure, else the one that the table derives from others; 0: neither.
double stated_or_derived(const CsvRow& row, const std::string& column);

}  // namespace shardplan
