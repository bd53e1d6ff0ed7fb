#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace shardplan {

/// Writes a safetensors file of float32 tensors piece by piece, from any thread and together with
/// other processes. The file has its name only once it is complete: until commit() it is NAME.tmp,
/// which the destructor of who made it removes, with the folders that were made for it.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  /// One process makes the folder, the file and its header; others join with the same tensors.
  enum class Open { Create, Join };

  /// Throws SystemError when the file cannot be written.
  SafetensorsWriter(const std::string& path, std::span<const Entry> tensors,
                    Open open = Open::Create);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Elements [first, first + values.size()) of the tensor `name`. Throws SystemError.
  void write(const std::string& name, std::int64_t first, std::span<const float> values);
  /// Once every element of this process is written: flushes to disk. Who made the file calls it
  /// when the others have, and gives the file its name.
  void commit();

 private:
  void make(const std::string& header, std::int64_t bytes);
  [[noreturn]] void fail(const char* action) const;
  void discard();
  void make_folder(const std::filesystem::path& folder);
  void write_at(std::int64_t offset, const void* data, std::size_t bytes);

  const std::string path_;
  const std::string temporary_;
  const bool made_here_;
  std::map<std::string, std::int64_t> offsets_;      // of each tensor's first byte in the file
  std::vector<std::filesystem::path> made_folders_;  // the deepest first
  int file_ = -1;
};

}  // namespace shardplan
