#include "runtime/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "plans/error.h"

namespace shardplan {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(20);  // until a listener is there
constexpr int kBacklog = 4096;  // connections that wait to be accepted; the system caps it

[[noreturn]] void fail(const std::string& what, int error) {
  throw SystemError(fmt::format("{}: {}", what, std::strerror(error)));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// What the name of a host and a port stand for. Empty: all addresses of this machine.
Addresses resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  if (error != 0)
    throw SystemError(fmt::format("cannot find the host '{}': {}", host, gai_strerror(error)));
  return {found, &freeaddrinfo};
}

void wait_for(const Socket& socket, short events, Deadline deadline, const char* what) {
  for (;;) {
    pollfd one{socket.get(), events, 0};
    const int ready = poll(&one, 1, milliseconds_until(deadline));
    if (ready > 0) return;
    if (ready == 0) throw SystemError(fmt::format("timed out: {}", what));
    if (errno != EINTR) fail(what, errno);
  }
}

Socket prepared(Socket connection) {
  const int yes = 1;
  setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  fcntl(connection.get(), F_SETFL, fcntl(connection.get(), F_GETFL) | O_NONBLOCK);
  return connection;
}

Moved moved(ssize_t count, bool nothing_means_closed) {
  if (count > 0) return {static_cast<std::size_t>(count), false};
  if (count == 0) return {0, nothing_means_closed};
  return {0, errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR};
}

}  // namespace

Deadline deadline_in(Seconds seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(seconds));
}

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket listen_on(const std::string& host, std::uint16_t port) {
  const std::string what = fmt::format("cannot listen on {}:{}", host.empty() ? "*" : host, port);
  const Addresses address = resolve(host, port);
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) fail(what, errno);
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener.get(), address->ai_addr, address->ai_addrlen) != 0 ||
      listen(listener.get(), kBacklog) != 0)
    fail(what, errno);
  return listener;
}

std::uint16_t port_of(const Socket& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail("cannot tell the port of a socket", errno);
  return ntohs(address.sin_port);
}

Socket connect_to(const std::string& host, std::uint16_t port, Deadline deadline) {
  for (;;) {
    const Addresses address = resolve(host, port);
    Socket connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!connection) fail("cannot make a socket", errno);
    const int left = milliseconds_until(deadline);
    const timeval limit{left / 1000 + 1, 0};  // else a host that does not answer takes minutes
    setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(connection.get(), address->ai_addr, address->ai_addrlen) == 0)
      return prepared(std::move(connection));
    const int error = errno;
    if (std::chrono::steady_clock::now() + kRetry > deadline)
      fail(fmt::format("cannot connect to {}:{}", host, port), error);
    std::this_thread::sleep_for(kRetry);
  }
}

Socket accept_from(const Socket& listener, Deadline deadline) {
  for (;;) {
    wait_for(listener, POLLIN, deadline, "no connection came");
    Socket connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) return prepared(std::move(connection));
    if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
      fail("cannot accept a connection", errno);
  }
}

std::string peer_address(const Socket& connection) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  if (getpeername(connection.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail("cannot tell the address of a peer", errno);
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

Moved send_some(const Socket& connection, std::span<const std::byte> bytes) noexcept {
  return moved(send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT),
               false);
}

Moved receive_some(const Socket& connection, std::span<std::byte> bytes) noexcept {
  return moved(recv(connection.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), true);
}

void send_all(const Socket& connection, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const Moved sent = send_some(connection, bytes);
    if (sent.closed) throw SystemError("the connection was closed by the other end");
    bytes = bytes.subspan(sent.bytes);
    if (sent.bytes == 0) wait_for(connection, POLLOUT, deadline, "a peer takes no data");
  }
}

void receive_all(const Socket& connection, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const Moved received = receive_some(connection, bytes);
    if (received.closed) throw SystemError("the connection was closed by the other end");
    bytes = bytes.subspan(received.bytes);
    if (received.bytes == 0) wait_for(connection, POLLIN, deadline, "a peer sends no data");
  }
}

}  // namespace shardplan
