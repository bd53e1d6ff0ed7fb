#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace shardplan {

/// Writes a whole file: under a temporary name beside `path` first, which then takes its place.
/// What is no file (a pipe, a device) is written to directly. Throws SystemError.
void write_file(const std::string& path, std::string_view text);

/// Makes the folder and those above it. Throws SystemError.
void make_folder(const std::string& path);

/// Keeps other runs from writing to a folder as long as this lives. Makes it where it is not there,
/// and takes it away again when nothing has come into it. Throws InputError when one does or the
/// path is a file, SystemError when the folder cannot be made.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::string made_;  // the folder, when it was not there; else empty
  int folder_ = -1;
};

/// A file that grows line by line. It is called partial_path() until finish() renames it, so that
/// what is called `path` is whole.
class LineFile {
 public:
  static std::string partial_path(const std::string& path) { return path + ".partial"; }

  /// Throws SystemError.
  explicit LineFile(const std::string& path);

  /// Adds the line and a line feed, and hands both to the system. Throws SystemError.
  void add(std::string_view line);
  void finish();

 private:
  std::string path_;
  std::string partial_;
  std::ofstream file_;
};

}  // namespace shardplan
