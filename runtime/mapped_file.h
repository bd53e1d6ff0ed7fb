#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace shardplan {

/// A file's bytes, read-only, for as long as this lives. The pages are loaded when they are used.
class MappedFile {
 public:
  /// Throws InputError, naming the file as `what` ("tokens"), when it cannot be read.
  MappedFile(const std::string& path, const std::string& what);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace shardplan
