#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace shardplan {

/// Writes a safetensors file of float32 tensors piece by piece, from any thread. The file has its
/// name only once it is complete: until commit() it is NAME.tmp, which the destructor removes.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  /// Makes the folder and the header. Throws SystemError when the file cannot be written.
  SafetensorsWriter(const std::string& path, std::span<const Entry> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Elements [first, first + values.size()) of the tensor `name`. Throws SystemError.
  void write(const std::string& name, std::int64_t first, std::span<const float> values);
  /// Once every element is written: flushes to disk and gives the file its name.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;
  void write_at(std::int64_t offset, const void* data, std::size_t bytes);

  const std::string path_;
  const std::string temporary_;
  std::map<std::string, std::int64_t> offsets_;  // of each tensor's first byte in the file
  int file_ = -1;
};

}  // namespace shardplan
