#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "plans/units.h"

namespace shardplan {

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_in(Seconds seconds);
/// Milliseconds until then for poll(), rounded up; 0 when it is over.
int milliseconds_until(Deadline deadline);

/// Owns a file descriptor; -1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// TCP. All calls throw SystemError; those with a deadline also when it is over.
///
/// Listens on a port (0: any free one) of one address, or (empty `host`) of all.
Socket listen_on(const std::string& host, std::uint16_t port);
std::uint16_t port_of(const Socket& listener);
/// Tries until somebody listens there. The connection does not block and sends at once.
Socket connect_to(const std::string& host, std::uint16_t port, Deadline deadline);
Socket accept_from(const Socket& listener, Deadline deadline);
/// The numeric address of the other end.
std::string peer_address(const Socket& connection);

void send_all(const Socket& connection, std::span<const std::byte> bytes, Deadline deadline);
void receive_all(const Socket& connection, std::span<std::byte> bytes, Deadline deadline);

/// What send or receive of a connection that does not block can do now. Returns the bytes moved;
/// `closed` says that the other end is gone.
struct Moved {
  std::size_t bytes = 0;
  bool closed = false;
};
Moved send_some(const Socket& connection, std::span<const std::byte> bytes) noexcept;
Moved receive_some(const Socket& connection, std::span<std::byte> bytes) noexcept;

}  // namespace shardplan
