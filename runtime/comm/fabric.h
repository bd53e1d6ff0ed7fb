#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/comm/socket.h"

namespace shardplan {

/// One stream's way to the other processes of a job and back. Bytes come in the order in which they
/// were sent. One thread at a time uses it.
class Lane {
 public:
  /// What is still to come from a peer and to go to it.
  struct Pending {
    std::int64_t rank = 0;
    bool out = false;
    bool in = false;
  };

  virtual ~Lane() = default;

  /// Sends or receives from the front of `bytes` what can be moved now; whoever moved less calls
  /// again with the rest. `bytes` must stay until all are moved or the fabric is abandoned, and
  /// both ends must pass the same bounds: what one end sends in two spans, the other receives in
  /// two.
  virtual Moved send(std::int64_t peer, std::span<const std::byte> bytes) = 0;
  virtual Moved receive(std::int64_t peer, std::span<std::byte> bytes) = 0;
  /// Returns when one of those may go on or the descriptor `wake` is readable; false: when the
  /// deadline is over.
  virtual bool wait(std::span<const Pending> pending, int wake, Deadline deadline) = 0;
};

/// What carries the bytes of a job between its processes.
class Fabric {
 public:
  virtual ~Fabric() = default;

  /// A fresh lane, which must not outlive the fabric. All processes call it equally often. Throws
  /// SystemError.
  virtual std::unique_ptr<Lane> open() = 0;
  /// The job has failed: memory that lanes were given is left alone from now on.
  virtual void abandon() noexcept = 0;
};

}  // namespace shardplan
