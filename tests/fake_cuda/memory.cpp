#include "tests/fake_cuda/memory.h"

#include <algorithm>
#include <cstdlib>

namespace fake_cuda {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc's
constexpr int kPoison = 0xff;            // NaN in every format, and no index

}  // namespace

void Memory::set_devices(int devices, std::size_t bytes) {
  used_.assign(static_cast<std::size_t>(devices), 0);
  capacity_ = bytes;
}

void* Memory::allocate(int device, std::size_t bytes) {
  if (device != kHost) {
    std::size_t& used = used_[static_cast<std::size_t>(device)];
    if (used + bytes > capacity_) return nullptr;
    used += bytes;
  }
  const std::size_t size = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) return nullptr;
  std::memset(memory, kPoison, size);
  Block& block = blocks_[reinterpret_cast<std::uintptr_t>(memory)];
  block = {bytes, device, {}};
  block.cells[0].end = bytes;
  return memory;
}

bool Memory::free(void* memory) {
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == blocks_.end()) return false;
  if (found->second.device != kHost)
    used_[static_cast<std::size_t>(found->second.device)] -= found->second.bytes;
  blocks_.erase(found);
  std::free(memory);
  return true;
}

/// Makes a cell begin there.
void Memory::cut(Block& block, std::size_t at) {
  if (at >= block.bytes) return;
  const auto next = block.cells.upper_bound(at);
  const auto cell = std::prev(next);
  if (cell->first == at) return;
  Cell rest = cell->second;
  cell->second.end = at;
  block.cells.emplace_hint(next, at, std::move(rest));
}

std::string Memory::touch(Cell& cell, const Touch& now, const Clock& clock, bool writes) {
  const auto race = [&](const Touch& other) {
    return "race: nothing orders [" + other.what + "] on stream " + std::to_string(other.stream) +
           " before [" + now.what + "] on stream " + std::to_string(now.stream);
  };
  if (!cell.writer.before(clock)) return race(cell.writer);
  if (writes) {
    for (const Touch& reader : cell.readers)
      if (!reader.before(clock)) return race(reader);
    cell.writer = now;
    cell.readers.clear();
    return {};
  }
  const auto own = std::find_if(cell.readers.begin(), cell.readers.end(),
                                [&](const Touch& reader) { return reader.stream == now.stream; });
  if (own != cell.readers.end())
    *own = now;
  else
    cell.readers.push_back(now);
  return {};
}

std::string Memory::touch(const Stream& stream, const Access& access, const std::string& what) {
  if (access.bytes.empty()) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(access.bytes.data());
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return "[" + what + "] touches memory that nobody allocated";
  --found;
  Block& block = found->second;
  const std::size_t begin = address - found->first;
  const std::size_t end = begin + access.bytes.size();
  if (end > block.bytes) return "[" + what + "] touches memory that nobody allocated";
  if (block.device != kHost && block.device != stream.device)
    return "[" + what + "] on device " + std::to_string(stream.device) +
           " touches memory of device " + std::to_string(block.device);
  cut(block, begin);
  cut(block, end);
  const Touch now{stream.id, stream.clock[static_cast<std::size_t>(stream.id)], what};
  for (auto cell = block.cells.find(begin); cell != block.cells.end() && cell->first < end; ++cell)
    if (std::string wrong = touch(cell->second, now, stream.clock, access.writes); !wrong.empty())
      return wrong;
  return {};
}

}  // namespace fake_cuda
