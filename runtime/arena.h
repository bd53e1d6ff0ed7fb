#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "plans/units.h"

namespace shardplan {

/// The memory of one rank: one allocation, with guard areas before and after it that nothing may
/// write to.
class Arena {
 public:
  static constexpr Bytes kGuardBytes = 4096;
  static constexpr Bytes kAlignment = 2 << 20;  // of large pages

  /// Throws SystemError when there is not enough memory.
  explicit Arena(Bytes bytes);

  std::span<std::byte> bytes() { return all().subspan(kGuardBytes, bytes_); }
  std::span<std::byte> guard_before() { return all().first(kGuardBytes); }
  std::span<std::byte> guard_after() { return all().subspan(kGuardBytes + bytes_, kGuardBytes); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::span<std::byte> all() {
    return {memory_.get(), static_cast<std::size_t>(bytes_ + 2 * kGuardBytes)};
  }

  const Bytes bytes_;
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace shardplan
