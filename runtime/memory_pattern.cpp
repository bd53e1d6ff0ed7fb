#include "runtime/memory_pattern.h"

#include <cstring>

#include "kernels/pattern.h"

namespace shardplan {
namespace {

constexpr std::uintptr_t kWord = sizeof(kPattern);

/// Calls visit(begin, end) for the words of memory as offsets in it; parts of words at the ends.
template <typename Visit>
void for_each_word(std::span<const std::byte> memory, Visit visit) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t last = first + memory.size();
  for (std::uintptr_t at = first, next = 0; at < last; at = next) {
    next = pattern_word_end(at, last);
    visit(at - first, next - first);
  }
}

}  // namespace

void fill_pattern(std::span<std::byte> memory) {
  for_each_word(memory, [&](std::size_t begin, std::size_t end) {
    if (end - begin == kWord) {
      std::memcpy(memory.data() + begin, &kPattern, kWord);
      return;
    }
    for (std::size_t at = begin; at < end; ++at)
      memory[at] = pattern_byte(reinterpret_cast<std::uintptr_t>(memory.data()) + at);
  });
}

Bytes count_changed(std::span<const std::byte> memory) {
  Bytes changed = 0;
  for_each_word(memory, [&](std::size_t begin, std::size_t end) {
    if (end - begin == kWord) {
      std::uint32_t word;
      std::memcpy(&word, memory.data() + begin, kWord);
      if (word != kPattern) changed += static_cast<Bytes>(kWord);
      return;
    }
    for (std::size_t at = begin; at < end; ++at)
      if (memory[at] != pattern_byte(reinterpret_cast<std::uintptr_t>(memory.data()) + at)) {
        changed += static_cast<Bytes>(end - begin);
        return;
      }
  });
  return changed;
}

}  // namespace shardplan
