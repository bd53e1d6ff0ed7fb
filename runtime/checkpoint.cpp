#include "runtime/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <system_error>

#include "plans/error.h"
#include "plans/json_cursor.h"
#include "runtime/crc32c.h"
#include "runtime/safetensors.h"
#include "runtime/training_state.h"

namespace shardplan {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// "step-00000012": names in order of steps.
constexpr std::string_view kPrefix = "step-";

bool is_checkpoint(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

}  // namespace

std::string checkpoint_folder(const std::string& output) {
  return (fs::path(output) / "checkpoints").string();
}

std::string checkpoint_path(const std::string& output, int steps) {
  return (fs::path(checkpoint_folder(output)) / fmt::format("{}{:08}", kPrefix, steps)).string();
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (is_checkpoint(entry.path())) found.push_back(entry.path().string());
  std::ranges::sort(found, std::greater());
  return found;
}

Checkpoint::Checkpoint(const std::string& path, Verify verify) : path_(path) {
  const std::string manifest = (fs::path(path) / "checkpoint.json").string();
  const MappedFile text(manifest, "checkpoint");
  const JsonDocument document(
      {reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()}, manifest);
  const JsonCursor root = document.root();
  if (root.at("schema").text() != kCheckpointSchema)
    root.at("schema").fail(fmt::format("expected {}", kCheckpointSchema));
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
