#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "runtime/arena.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/comm/communicator.h"
#include "runtime/device_kind.h"
#include "runtime/interpreter.h"
#include "runtime/job_failure.h"
#include "runtime/measure.h"
#include "runtime/progress.h"

namespace shardplan {

/// One rank of a job: its memory, its streams, and the program it issues to them.
class Rank {
 public:
  struct Options {
    const DeviceKind* kind = nullptr;
    DeviceOptions device;  // of the first rank of this process; streams are the plan's
    bool measure_memory = true;
    int checkpoint_every = 0;                                    // steps; 0: never
    bool cuda_graphs = false;                                    // see RunJob
    std::function<void(InstructionId, int)> before_instruction;  // may be empty
    std::function<bool()> stop_requested;  // asked after every step; may be empty
  };
  /// All references must outlive this. Throws SystemError when memory or threads lack.
  Rank(const Plan& plan, const Options& options, Communicator& communicator, const JobData& data,
       JobFailure& failure);

  /// Issues the whole program and waits for its end; errors go to the job's failure. Called once.
  void run() noexcept;
  /// Ends run() soon, from any thread.
  void stop() noexcept;

  /// After run(): it ended before the last step because of a request, and wrote a checkpoint.
  bool stopped_early() const { return stopped_early_; }
  /// Blocks until the step (from 0) is done with all that it issued; false: stopped before that.
  bool wait_step(std::int32_t step);
  /// When the first step was first issued; valid once that step is done.
  std::chrono::steady_clock::time_point first_step_begin() const { return first_step_begin_; }
  /// After run(): the measured memory.
  const RankMemory& memory() const { return memory_; }
  /// After run(): what each instruction took in a step, on the mean of those after the first; none
  /// when the device does not tell.
  std::vector<InstructionTime> instruction_times() const;
  /// After run(): float32 operands; valid until the next call for the same one.
  std::span<const float> values(const View& view) const;

 private:
  /// How many issues each stream has been given.
  using Counts = std::array<std::uint64_t, kStreams>;
  struct Latest {
    Stream stream = Stream::Compute;
    std::uint64_t number = 0;  // on the stream; 0: never issued
  };

  /// Seconds of an instruction's executions. Those of the first step are apart: it is slower.
  struct Spent {
    Seconds first_step = 0;
    Seconds later = 0;
  };

  /// What all ranks know after a step.
  struct Agreement {
    bool stops = false;        // some rank is asked to
    bool all_written = false;  // the files of a pending checkpoint
  };

  int first_step() const {
    return data_.checkpoint == nullptr ? 0 : data_.checkpoint->position().steps;
  }
  void connect();
  bool execute(const Issue& issue) noexcept;
  bool issue_item(const ProgramItem& item);
  bool issue_pass(const ProgramItem& item);
  bool issue_steps(const ProgramItem& item);
  bool issue_step(const ProgramItem& item);
  bool issue_one(InstructionId id);
  void restore_optimizer();
  bool end_step(int steps_done);
  Agreement agree();
  std::int32_t next_micro_step(const Instruction& instruction);
  bool wait_for(const Counts& counts);

  const Plan& plan_;
  Communicator& communicator_;
  JobFailure& failure_;
  const Options options_;
  const JobData& data_;
  const std::unique_ptr<Device> device_;
  const Arena arena_;
  std::optional<MemoryMeter> meter_;
  RankMemory memory_;

  std::int32_t step_ = 0;
  bool stopped_early_ = false;
  bool finished_ = false;                       // everything that was issued
  std::vector<Latest> latest_;                  // by instruction
  std::vector<Spent> spent_;                    // likewise
  std::array<std::int32_t, kSources> reads_{};  // by source: issues in this step
  Counts issued_{};
  std::vector<Counts> step_ends_;  // by step
  Progress steps_issued_;
  std::chrono::steady_clock::time_point first_step_begin_;

  CheckpointWriter writer_;
  std::unique_ptr<Communicator> own_communicator_;  // null: the job's does all
  std::optional<Interpreter> interpreter_;          // once connected
};

}  // namespace shardplan
