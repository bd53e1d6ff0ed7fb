#pragma once

#include <cstddef>
#include <span>

#include "plans/units.h"
#include "runtime/device.h"

namespace shardplan {

/// The memory of one rank: one allocation, with guard areas before and after it that nothing may
/// write to.
class Arena {
 public:
  static constexpr Bytes kGuardBytes = 4096;

  /// Throws SystemError when there is not enough memory. The device must outlive this.
  Arena(Device& device, Bytes bytes)
      : bytes_(bytes), all_(device.allocate(Space::Device, bytes + 2 * kGuardBytes)) {}

  std::span<std::byte> bytes() const { return all_.subspan(kGuardBytes, bytes_); }
  std::span<std::byte> guard_before() const { return all_.first(kGuardBytes); }
  std::span<std::byte> guard_after() const {
    return all_.subspan(kGuardBytes + bytes_, kGuardBytes);
  }
  std::span<std::byte> all() const { return all_; }

 private:
  const Bytes bytes_;
  const std::span<std::byte> all_;
};

}  // namespace shardplan
