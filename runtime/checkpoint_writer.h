#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "plans/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/training_position.h"

namespace shardplan {

/// A part of what a rank holds that this rank writes: ranks that hold the same share the work.
struct CheckpointShare {
  std::string name;  // of the tensor
  std::int64_t first = 0;
  std::span<const float> values;
};

/// One rank's part in writing checkpoints while training goes on: its share of the state is copied,
/// and a thread writes the copy. A checkpoint appears under its name once the files of all ranks
/// are on disk.
class CheckpointWriter {
 public:
  /// The float32 values of an operand of this rank, valid while none of its instructions runs.
  using ValuesOf = std::function<std::span<const float>(const View& view)>;

  /// All must outlive this.
  CheckpointWriter(const Plan& plan, Communicator& communicator, ValuesOf values_of);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Begins to write the checkpoint after `position.steps` into the job's output; the one before
  /// must be finished. All ranks call it when none of their instructions is running. Throws
  /// SystemError when there is no memory or no folder for it.
  void begin(const TrainingPosition& position);
  /// Between begin() and finish(); the same on all ranks.
  bool is_pending() const { return thread_.joinable(); }
  /// This rank's file is on disk, or cannot be written.
  bool is_written() const { return written_.load(std::memory_order_acquire); }
  /// Blocks until the files of all ranks are on disk; rank 0 then gives the checkpoint its name and
  /// removes all but this one and the one before. All ranks call it. Throws SystemError when a file
  /// cannot be written; the older checkpoints are then as they were.
  void finish();

 private:
  void copy_shares();
  void write() noexcept;

  const Plan& plan_;
  Communicator& communicator_;
  const ValuesOf values_of_;
  TrainingPosition position_;
  std::filesystem::path folder_;  // while it is made
  std::vector<CheckpointShare> shares_;
  std::vector<float> copies_;  // what they point into
  std::string entry_;          // of this rank's file in checkpoint.json
  std::exception_ptr error_;
  std::atomic<bool> written_{false};
  std::thread thread_;
};

}  // namespace shardplan
