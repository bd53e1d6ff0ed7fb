#include "runtime/checkpoint_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "plans/error.h"
#include "runtime/checkpoint.h"
#include "runtime/comm/messages.h"
#include "runtime/crc32c.h"
#include "runtime/mapped_file.h"
#include "runtime/safetensors_writer.h"
#include "runtime/start_thread.h"
#include "runtime/training_state.h"

namespace shardplan {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKept = 2;  // the newest, and one to fall back on

[[noreturn]] void fail(const fs::path& path, const char* action, int error) {
  throw SystemError(
      fmt::format("{}: cannot {} the checkpoint: {}", path.string(), action, std::strerror(error)));
}

std::vector<CheckpointShare> shares_of(const Plan& plan, std::int64_t rank,
                                       const CheckpointWriter::ValuesOf& values_of) {
  std::vector<CheckpointShare> shares;
  for (const StatePart& part : training_state(plan)) {
    const std::int64_t holders = holders_of_one_copy(plan.units[part.unit]);
    const std::int64_t copies = plan.world_size() / holders;
    const std::int64_t copy = rank / holders;
    const std::span<const float> values = values_of(part.values);
    for (const Piece& piece : pieces_of(plan, part, rank)) {
      const std::int64_t begin = piece.elems * copy / copies;
      const std::int64_t end = piece.elems * (copy + 1) / copies;
      if (begin < end)
        shares.push_back({name_of(plan, part, piece), piece.first + begin,
                          values.subspan(piece.at + begin, end - begin)});
    }
  }
  return shares;
}

void write_shares(std::span<const CheckpointShare> shares, const fs::path& file) {
  const auto entry_name = [](const CheckpointShare& share) {
    return fmt::format("{}@{}", share.name, share.first);
  };
  std::vector<SafetensorsWriter::Entry> entries;
  for (const CheckpointShare& share : shares)
    entries.push_back({entry_name(share), {static_cast<std::int64_t>(share.values.size())}});
  SafetensorsWriter writer(file.string(), entries);
  for (const CheckpointShare& share : shares)
    writer.write(entry_name(share), 0, share.values);
  writer.commit();
}

nlohmann::json entry_of(const fs::path& file) {
  const MappedFile written(file.string(), "checkpoint");
  return {{"name", file.filename().string()},
          {"bytes", written.bytes().size()},
          {"crc32c", crc32c(written.bytes())}};
}

/// Flushes a file or a folder to disk.
void flush(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool flushed = file >= 0 && fsync(file) == 0;
  const int error = errno;
  if (file >= 0) close(file);
  if (!flushed) fail(path, "flush", error);
}

void write_text(const fs::path& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail(path, "create", errno);
  const ssize_t written = write(file, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;
  close(file);
  if (written != static_cast<ssize_t>(text.size())) fail(path, "write", error);
  flush(path);
}

void make_empty(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  if (error) fail(folder, "make a folder for", error.value());
}

/// Gives the folder its name, and removes what is older than the one before.
void publish(const fs::path& made, const fs::path& name) {
  std::error_code error;
  fs::remove_all(name, error);  // a resumed job comes by the same steps again
  fs::rename(made, name, error);
  if (error) fail(made, "rename", error.value());
  flush(name.parent_path());
  const std::vector<std::string> all = checkpoints_in(name.parent_path().string());
  for (std::size_t i = kKept; i < all.size(); ++i)
    fs::remove_all(all[i], error);
}

std::string manifest_of(const Plan& plan, const TrainingPosition& position,
                        const std::vector<std::string>& entries) {
  nlohmann::ordered_json json{
      {"schema", kCheckpointSchema},     {"step", position.steps},
      {"sequences", position.sequences}, {"world_size", plan.world_size()},
      {"plan_hash", hash_of(plan)},      {"files", nlohmann::ordered_json::array()}};
  for (const std::string& entry : entries)
    json["files"].push_back(nlohmann::ordered_json::parse(entry));
  return json.dump(1) + "\n";
}

}  // namespace

CheckpointWriter::CheckpointWriter(const Plan& plan, Communicator& communicator, ValuesOf values_of)
    : plan_(plan), communicator_(communicator), values_of_(std::move(values_of)) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::begin(const TrainingPosition& position) {
  check(!is_pending(), "one checkpoint is written at a time");
  position_ = position;
  folder_ = checkpoint_path(plan_.job.run.output, position.steps) + ".tmp";
  if (communicator_.rank() == 0) make_empty(folder_);
  barrier(communicator_);
  shares_ = shares_of(plan_, communicator_.rank(), values_of_);
  copy_shares();
  written_ = false;
  thread_ = start_thread([this] { write(); });
}

void CheckpointWriter::copy_shares() {
  std::size_t elems = 0;
  for (const CheckpointShare& share : shares_)
    elems += share.values.size();
  copies_.resize(elems);
  std::span<float> rest(copies_);
  for (CheckpointShare& share : shares_) {
    std::ranges::copy(share.values, rest.begin());
    share.values = rest.first(share.values.size());
    rest = rest.subspan(share.values.size());
  }
}

void CheckpointWriter::write() noexcept {
  try {
    const fs::path file = folder_ / fmt::format("rank-{:05}.safetensors", communicator_.rank());
    write_shares(shares_, file);
    entry_ = entry_of(file).dump();
  } catch (...) {
    error_ = std::current_exception();
  }
  written_.store(true, std::memory_order_release);
}

void CheckpointWriter::finish() {
  thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  const std::vector<std::string> entries = gather_texts(communicator_, entry_);
  if (communicator_.rank() != 0) return;
  write_text(folder_ / "checkpoint.json", manifest_of(plan_, position_, entries));
  flush(folder_);
  publish(folder_, checkpoint_path(plan_.job.run.output, position_.steps));
}

}  // namespace shardplan
