#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/plan.h"
#include "runtime/mapped_file.h"
#include "runtime/training_position.h"

namespace shardplan {

/// A checkpoint is a folder with all that training needs to go on: of every rank a safetensors file
/// with its share of parameters and optimizer state (tensors "NAME@FIRST": from element FIRST of
/// NAME on), and checkpoint.json, which is written last and holds the position and every file's
/// size and checksum. It is made under another name that then becomes its own, so what has the name
/// is whole. Jobs of any world and any way of sharding can read it.

inline constexpr std::string_view kCheckpointSchema = "shardplan/checkpoint/1";

/// Folder of the checkpoints of a job that writes to `output`.
std::string checkpoint_folder(const std::string& output);
/// Path of the one after so many steps.
std::string checkpoint_path(const std::string& output, int steps);
/// Paths of the checkpoints in a folder, newest first.
std::vector<std::string> checkpoints_in(const std::string& folder);

/// A checkpoint to read from; any thread may.
class Checkpoint {
 public:
  enum class Verify { Sizes, Checksums };  // the latter reads all files
  /// Throws InputError when it is not whole or was changed.
  Checkpoint(const std::string& path, Verify verify);

  const TrainingPosition& position() const { return position_; }
  /// Throws InputError when it lacks something of what the plan trains.
  void expect_state_of(const Plan& plan) const;
  /// Elements [first, first + out.size()) of a tensor that expect_state_of() has found.
  void read(const std::string& name, std::int64_t first, std::span<float> out) const;

 private:
  struct Part {
    std::int64_t elems = 0;
    const std::byte* values = nullptr;  // float32
  };

  void add(const std::string& file);
  bool has(const std::string& name, std::int64_t first, std::int64_t elems) const;

  const std::string path_;
  TrainingPosition position_;
  std::deque<MappedFile> files_;
  std::map<std::string, std::map<std::int64_t, Part>> tensors_;  // by name and first element
};

}  // namespace shardplan
