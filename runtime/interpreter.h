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
class Interpreter final : private HostData {
 public:
  /// `arena` is the memory that buffer offsets count in. All must outlive this.
  Interpreter(const Plan& plan, std::span<std::byte> arena, Device& device,
              Communicator& communicator, const JobData& data);

  /// Does the work of an issue, or on a device that works on its own, enqueues it there.
  void run(const Issue& issue);

  Operand operand(const View& view) const;

 private:
  struct Execution;  // the visitor of one issue
  struct Operands {
    std::vector<Operand> reads;
    std::vector<Operand> writes;
  };

  void provide(const Issue& issue, Bytes at, std::span<std::byte> part) override;
  void accept(const Issue& issue, Bytes at, std::span<const std::byte> part) override;
  const Unit& unit_of(const Instruction& instruction) const {
    return plan_.units[instruction.unit];
  }

  const Plan& plan_;
  const std::span<std::byte> arena_;
  Device& device_;
  Communicator& communicator_;
  const JobData& data_;
  std::vector<Operands> operands_;  // by instruction
};

}  // namespace shardplan
