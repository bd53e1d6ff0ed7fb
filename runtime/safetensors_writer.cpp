#include "runtime/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "plans/error.h"
#include "plans/units.h"

namespace shardplan {

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const Entry> tensors,
                                     Open open)
    : path_(path), temporary_(path + ".tmp"), made_here_(open == Open::Create) {
  nlohmann::json header;
  header["__metadata__"] = {{"format", "pt"}};  // transformers refuses files without it
  std::int64_t end = 0;
  for (const Entry& tensor : tensors) {
    const std::int64_t begin = end;
    std::int64_t bytes = sizeof(float);
    for (const std::int64_t extent : tensor.shape)
      bytes *= extent;
    end += bytes;
    offsets_[tensor.name] = begin;
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize(round_up(static_cast<std::int64_t>(text.size()), 8), ' ');  // aligns the data
  const auto data_begin = static_cast<std::int64_t>(sizeof(std::uint64_t) + text.size());
  for (auto& [name, offset] : offsets_)
    offset += data_begin;
  if (made_here_)
    make(text, data_begin + end);
  else
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CLOEXEC);
  if (file_ < 0) fail("open");
}

void SafetensorsWriter::make(const std::string& header, std::int64_t bytes) {
  make_folder(std::filesystem::path(path_).parent_path());
  try {
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_ < 0) fail("create");
    const std::uint64_t header_bytes = header.size();
    if (ftruncate(file_, bytes) != 0) fail("reserve space for");
    write_at(0, &header_bytes, sizeof(header_bytes));
    write_at(sizeof(header_bytes), header.data(), header.size());
  } catch (...) {
    discard();
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ >= 0) discard();
}

void SafetensorsWriter::discard() {
  if (file_ >= 0) close(file_);
  if (!made_here_) return;
  if (file_ >= 0) unlink(temporary_.c_str());
  std::error_code ignored;  // somebody else has put something there
  for (const auto& folder : made_folders_)
    std::filesystem::remove(folder, ignored);
}

void SafetensorsWriter::make_folder(const std::filesystem::path& folder) {
  std::error_code ignored;  // the file cannot be made then, and says why
  for (auto missing = folder; !missing.empty() && !std::filesystem::exists(missing, ignored);
       missing = missing.parent_path())
    made_folders_.push_back(missing);
  if (!made_folders_.empty()) std::filesystem::create_directories(folder, ignored);
}

void SafetensorsWriter::write(const std::string& name, std::int64_t first,
                              std::span<const float> values) {
  const auto tensor = offsets_.find(name);
  check(tensor != offsets_.end(), "only tensors of the header are written");
  write_at(tensor->second + first * static_cast<std::int64_t>(sizeof(float)), values.data(),
           values.size_bytes());
}

void SafetensorsWriter::commit() {
  if (fsync(file_) != 0) fail("flush");
  if (made_here_ && std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  close(file_);
  file_ = -1;
}

void SafetensorsWriter::fail(const char* action) const {
  throw SystemError(
      fmt::format("{}: cannot {} the weights file: {}", temporary_, action, std::strerror(errno)));
}

void SafetensorsWriter::write_at(std::int64_t offset, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(file_, from, bytes, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write");
    from += written;
    offset += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

}  // namespace shardplan
