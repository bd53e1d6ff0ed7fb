#pragma once

#include <span>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "runtime/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/device.h"
#include "runtime/tokens.h"
#include "runtime/weights.h"

namespace shardplan {

/// What the instructions of a job read from outside and write to it; shared by its ranks. What no
/// instruction uses may be null.
struct JobData {
  const Batches* batches = nullptr;
  const WeightSource* weight_source = nullptr;
  WeightSink* weight_sink = nullptr;       // null: weights are not kept
  const Checkpoint* checkpoint = nullptr;  // to go on from; null: the beginning
  std::span<const StepScalars> scalars;    // by step
  std::span<StepReport> steps;             // by step
  std::int64_t reporting_rank = 0;         // that writes into them
};

/// Executes single instructions of one rank. Different streams may do so at the same time.
class Interpreter {
 public:
  /// `arena` is the memory that buffer offsets count in. All must outlive this.
  Interpreter(const Plan& plan, std::span<std::byte> arena, Device& device,
              Communicator& communicator, const JobData& data);

  /// Blocks until the instruction has been executed.
  void run(const Issue& issue);

  std::span<std::byte> bytes_of(const View& view) const { return operand(view).bytes(); }

 private:
  struct Execution;  // the visitor of one issue
  struct Operands {
    std::vector<Operand> reads;
    std::vector<Operand> writes;
  };

  Operand operand(const View& view) const;

  const Plan& plan_;
  const std::span<std::byte> arena_;
  Device& device_;
  Communicator& communicator_;
  const JobData& data_;
  std::vector<Operands> operands_;  // by instruction
};

}  // namespace shardplan
