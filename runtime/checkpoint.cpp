#include "runtime/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "plans/error.h"
#include "plans/json_cursor.h"
#include "runtime/comm/messages.h"
#include "runtime/crc32c.h"
#include "runtime/safetensors.h"
#include "runtime/safetensors_writer.h"
#include "runtime/training_state.h"

namespace shardplan {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSchema = "shardplan/checkpoint/1";
constexpr std::size_t kKept = 2;  // the newest, and one to fall back on
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void fail(const fs::path& path, const char* action, int error) {
  throw SystemError(
      fmt::format("{}: cannot {} the checkpoint: {}", path.string(), action, std::strerror(error)));
}

/// A part of what a rank holds that this rank writes: ranks that hold the same share the work.
struct Share {
  std::string name;  // of the tensor
  std::int64_t first = 0;
  std::span<const float> values;
};

std::vector<Share> shares_of(const Plan& plan, std::int64_t rank,
                             const std::function<std::span<const float>(const View&)>& values_of) {
  std::vector<Share> shares;
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

void write_shares(const std::vector<Share>& shares, const fs::path& file) {
  const auto entry_name = [](const Share& share) {
    return fmt::format("{}@{}", share.name, share.first);
  };
  std::vector<SafetensorsWriter::Entry> entries;
  for (const Share& share : shares)
    entries.push_back({entry_name(share), {static_cast<std::int64_t>(share.values.size())}});
  SafetensorsWriter writer(file.string(), entries);
  for (const Share& share : shares)
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
  nlohmann::ordered_json json{{"schema", kSchema},
                              {"step", position.steps},
                              {"sequences", position.sequences},
                              {"world_size", plan.world_size()},
                              {"plan_hash", hash_of(plan)},
                              {"files", nlohmann::ordered_json::array()}};
  for (const std::string& entry : entries)
    json["files"].push_back(nlohmann::ordered_json::parse(entry));
  return json.dump(1) + "\n";
}

/// "step-00000012": names in order of steps.
constexpr std::string_view kPrefix = "step-";
std::string name_of_step(int steps) { return fmt::format("{}{:08}", kPrefix, steps); }

bool is_checkpoint(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

}  // namespace

std::string checkpoint_folder(const std::string& output) {
  return (fs::path(output) / "checkpoints").string();
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (is_checkpoint(entry.path())) found.push_back(entry.path().string());
  std::ranges::sort(found, std::greater());
  return found;
}

void write_checkpoint(const Plan& plan, Communicator& communicator,
                      const TrainingPosition& position,
                      const std::function<std::span<const float>(const View& view)>& values_of) {
  const std::int64_t rank = communicator.rank();
  const fs::path name =
      fs::path(checkpoint_folder(plan.job.run.output)) / name_of_step(position.steps);
  fs::path making = name;
  making += ".tmp";
  if (rank == 0) make_empty(making);
  barrier(communicator);
  const fs::path file = making / fmt::format("rank-{:05}.safetensors", rank);
  write_shares(shares_of(plan, rank, values_of), file);
  const std::vector<std::string> entries = gather_texts(communicator, entry_of(file).dump());
  if (rank != 0) return;
  write_text(making / "checkpoint.json", manifest_of(plan, position, entries));
  flush(making);
  publish(making, name);
}

Checkpoint::Checkpoint(const std::string& path, Verify verify) : path_(path) {
  const std::string manifest = (fs::path(path) / "checkpoint.json").string();
  const MappedFile text(manifest, "checkpoint");
  const JsonDocument document(
      {reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()}, manifest);
  const JsonCursor root = document.root();
  if (root.at("schema").text() != kSchema)
    root.at("schema").fail(fmt::format("expected {}", kSchema));
  position_.steps = static_cast<int>(root.at("step").integer(0, std::numeric_limits<int>::max()));
  position_.sequences = root.at("sequences").integer(0, kMost);
  for (const JsonCursor& entry : root.at("files").elements()) {
    const std::string& name = entry.at("name").text();
    if (name.empty() || name.find('/') != std::string::npos)
      entry.at("name").fail("expected a file of this folder");
    files_.emplace_back((fs::path(path) / name).string(), "checkpoint");
    const std::span<const std::byte> bytes = files_.back().bytes();
    const std::int64_t expected = entry.at("bytes").integer(0, kMost);
    if (static_cast<std::int64_t>(bytes.size()) != expected)
      throw InputError(fmt::format("{}: has {} bytes, its checkpoint was written with {}",
                                   files_.back().path(), bytes.size(), expected));
    if (verify == Verify::Checksums && crc32c(bytes) != entry.at("crc32c").integer(0, 0xffffffff))
      throw InputError(fmt::format("{}: its content is not what was written: the checksum differs",
                                   files_.back().path()));
    add(files_.back().path());
  }
}

/// The tensors of the file that was opened last.
void Checkpoint::add(const std::string& file) {
  for (const auto& [name, tensor] : parse_safetensors(files_.back().bytes(), file)) {
    const std::size_t at = name.rfind('@');
    std::int64_t first = -1;
    if (at != std::string::npos)
      std::from_chars(name.data() + at + 1, name.data() + name.size(), first);
    if (first < 0 || tensor.dtype != Dtype::Float32)
      throw InputError(
          fmt::format("{}: tensor '{}': expected NAME@FIRST of dtype F32", file, name));
    tensors_[name.substr(0, at)][first] = {tensor.elements(), tensor.bytes.data()};
  }
}

bool Checkpoint::has(const std::string& name, std::int64_t first, std::int64_t elems) const {
  const auto tensor = tensors_.find(name);
  if (tensor == tensors_.end()) return false;
  auto part = tensor->second.upper_bound(first);
  if (part == tensor->second.begin()) return false;
  std::int64_t end = first;
  for (--part; part != tensor->second.end() && part->first <= end && end < first + elems; ++part)
    end = std::max(end, part->first + part->second.elems);
  return end >= first + elems;
}

void Checkpoint::expect_state_of(const Plan& plan) const {
  for (const StatePart& part : training_state(plan))
    for (std::int64_t rank = 0; rank < holders_of_one_copy(plan.units[part.unit]); ++rank)
      for (const Piece& piece : pieces_of(plan, part, rank))
        if (const std::string name = name_of(plan, part, piece);
            !has(name, piece.first, piece.elems))
          throw InputError(fmt::format(
              "{}: elements {} to {} of '{}' are missing; it is of another model or optimizer",
              path_, piece.first, piece.first + piece.elems - 1, name));
}

void Checkpoint::read(const std::string& name, std::int64_t first, std::span<float> out) const {
  const auto& parts = tensors_.at(name);
  auto part = std::prev(parts.upper_bound(first));
  while (!out.empty()) {
    const std::int64_t skipped = first - part->first;
    const auto count =
        std::min(part->second.elems - skipped, static_cast<std::int64_t>(out.size()));
    check(count > 0, "expect_state_of() has found all elements");
    std::memcpy(out.data(), part->second.values + skipped * sizeof(float), count * sizeof(float));
    out = out.subspan(count);
    first += count;
    ++part;
  }
}

}  // namespace shardplan
