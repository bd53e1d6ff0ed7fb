#include "tools/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "plans/error.h"

namespace shardplan {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw SystemError(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int reason = errno;
  std::remove(from.c_str());
  errno = reason;
  fail(to, "cannot be written");
}

/// False when the text could not be written; errno says why.
bool write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return static_cast<bool>(file);
}

}  // namespace

void write_file(const std::string& path, std::string_view text) {
  std::error_code unknown;
  const auto target = std::filesystem::status(path, unknown);
  if (std::filesystem::exists(target) && !std::filesystem::is_regular_file(target)) {
    if (!write_text(path, text)) fail(path, "cannot be written");
    return;
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  if (!write_text(temporary, text)) {
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    fail(path, "cannot be written");
  }
  rename_file(temporary, path);
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw SystemError(fmt::format("{}: the folder cannot be made: {}", path, error.message()));
}

FolderLock::FolderLock(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown) && !std::filesystem::is_directory(path, unknown))
    throw InputError(fmt::format("{}: is a file; --output names a folder", path));
  if (!std::filesystem::exists(path, unknown)) made_ = path;
  make_folder(path);
  folder_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems lock no folders: there users must take care themselves.
  if (folder_ >= 0 && flock(folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(folder_);
    throw InputError(
        fmt::format("{}: another run writes to this folder; name another with --output", path));
  }
}

FolderLock::~FolderLock() {
  std::error_code has_files;
  if (!made_.empty()) std::filesystem::remove(made_, has_files);
  if (folder_ >= 0) close(folder_);
}

LineFile::LineFile(const std::string& path)
    : path_(path), partial_(partial_path(path)), file_(partial_, std::ios::binary) {
  if (!file_) fail(partial_, "cannot be written");
}

void LineFile::add(std::string_view line) {
  file_ << line << '\n' << std::flush;
  if (!file_) fail(partial_, "cannot be written");
}

void LineFile::finish() {
  file_.close();
  if (!file_) fail(partial_, "cannot be written");
  rename_file(partial_, path_);
}

}  // namespace shardplan
