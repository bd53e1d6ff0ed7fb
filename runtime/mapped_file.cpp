#include "runtime/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "plans/error.h"

namespace shardplan {

MappedFile::MappedFile(const std::string& path, const std::string& what) : path_(path) {
  const auto fail = [&](const char* why) {
    throw InputError(fmt::format("{}: cannot read the {} file: {}", path, what, why));
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // never wait for a pipe
  if (file < 0) fail(std::strerror(errno));
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  const auto size = static_cast<std::size_t>(known ? status.st_size : 0);
  const bool regular = known && S_ISREG(status.st_mode);
  void* data = regular && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const int error = errno;
  close(file);
  if (!regular) fail("it is not a regular file");
  if (data == MAP_FAILED) fail(std::strerror(error));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace shardplan
