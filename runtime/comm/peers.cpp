#include "runtime/comm/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <span>

#include "plans/error.h"

namespace shardplan {
namespace {

constexpr std::array<char, 8> kMagic{'s', 'h', 'r', 'd', 'p', 'l', 'n', '1'};
constexpr std::uint32_t kMeeting = ~0u;  // the channel of the first connection, to rank 0

/// What whoever connects says first. Both ends are of one binary: no byte order to settle.
struct Hello {
  std::array<char, 8> magic = kMagic;
  std::uint32_t channel = kMeeting;
  std::uint16_t port = 0;  // where the sender listens; in a meeting only
  std::uint16_t mpi = 0;   // whether it has MPI; in a meeting only
  std::int64_t rank = 0;
  std::int64_t size = 0;
};

/// A line of the table that rank 0 sends to all.
struct AddressEntry {
  std::array<char, 60> host{};  // numeric
  std::uint16_t mpi = 0;        // whether all have it
  std::uint16_t port = 0;
};

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Strangers may connect too; a connection that does not begin as ours is none.
bool is_ours(const Hello& hello, std::int64_t size) {
  return hello.magic == kMagic && hello.rank >= 0 && hello.rank < hello.size &&
         (hello.size == size || hello.channel == kMeeting);
}

bool receive_hello(const Socket& connection, std::int64_t size, Deadline deadline, Hello& hello) {
  try {
    receive_all(connection, bytes_of(hello), deadline);
  } catch (const SystemError&) {
    return false;  // who hangs up before saying who it is was none of us
  }
  return is_ours(hello, size);
}

}  // namespace

Peers::Peers(const ProcessPlace& place, Socket listener, Seconds timeout_s)
    : place_(place), timeout_s_(timeout_s), listener_(std::move(listener)) {
  addresses_.resize(static_cast<std::size_t>(place.size));
  if (place.rank == 0)
    meet_as_first();
  else
    meet_as_other();
}

void Peers::meet_as_first() {
  if (!listener_) listener_ = listen_on("", place_.port);
  const Deadline deadline = deadline_in(timeout_s_);
  std::vector<Socket> connections(addresses_.size());
  addresses_[0] = {place_.host, port_of(listener_)};
  for (std::int64_t missing = place_.size - 1; missing > 0;) {
    Socket connection;
    try {
      connection = accept_from(listener_, deadline);
    } catch (const SystemError&) {
      std::vector<std::int64_t> absent;
      for (std::int64_t rank = 1; rank < place_.size; ++rank)
        if (!connections[rank]) absent.push_back(rank);
      throw SystemError(fmt::format("rank 0 waited {:g} s for rank {} to connect", timeout_s_,
                                    fmt::join(absent, ", ")));
    }
    Hello hello;
    if (!receive_hello(connection, place_.size, deadline, hello) || hello.channel != kMeeting)
      continue;
    if (hello.size != place_.size || hello.rank == 0 || connections[hello.rank])
      throw SystemError(
          fmt::format("a process connected as rank {} of {}, expected one each of ranks 1 to {}",
                      hello.rank, hello.size, place_.size - 1));
    addresses_[hello.rank] = {peer_address(connection), hello.port};
    place_.mpi = place_.mpi && hello.mpi != 0;
    connections[hello.rank] = std::move(connection);
    --missing;
  }
  std::vector<AddressEntry> table(addresses_.size());
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    addresses_[rank].host.copy(table[rank].host.data(), table[rank].host.size() - 1);
    table[rank].port = addresses_[rank].port;
    table[rank].mpi = place_.mpi;
  }
  for (std::int64_t rank = 1; rank < place_.size; ++rank)
    send_all(connections[rank], std::as_bytes(std::span(table)), deadline);
}

void Peers::meet_as_other() {
  const Deadline deadline = deadline_in(timeout_s_);
  listener_ = listen_on("", 0);
  try {
    const Socket connection = connect_to(place_.host, place_.port, deadline);
    Hello hello{
        .port = port_of(listener_), .mpi = place_.mpi, .rank = place_.rank, .size = place_.size};
    send_all(connection, bytes_of(hello), deadline);
    std::vector<AddressEntry> table(addresses_.size());
    receive_all(connection, std::as_writable_bytes(std::span(table)), deadline);
    for (std::size_t rank = 0; rank < table.size(); ++rank)
      addresses_[rank] = {table[rank].host.data(), table[rank].port};
    place_.mpi = table[0].mpi != 0;
  } catch (const SystemError& error) {
    throw SystemError(fmt::format("rank {} cannot reach rank 0 at {}:{}: {}", place_.rank,
                                  place_.host, place_.port, error.what()));
  }
  // What rank 0 calls itself may be a name that means something else here.
  addresses_[0] = {place_.host, place_.port};
}

std::vector<Socket> Peers::connect_all() {
  const std::uint32_t channel = channels_++;
  const Deadline deadline = deadline_in(timeout_s_);
  std::vector<Socket> connections(addresses_.size());
  for (std::int64_t peer = 0; peer < place_.rank; ++peer) {
    connections[peer] = connect_to(addresses_[peer].host, addresses_[peer].port, deadline);
    Hello hello{.channel = channel, .rank = place_.rank, .size = place_.size};
    send_all(connections[peer], bytes_of(hello), deadline);
  }
  for (std::int64_t peer = place_.rank + 1; peer < place_.size; ++peer) {
    while (!waiting_.contains({channel, peer}))
      accept_one(channel, deadline);
    connections[peer] = std::move(waiting_.extract({channel, peer}).mapped());
  }
  return connections;
}

/// Keeps a connection until its channel is opened here too.
void Peers::accept_one(std::uint32_t channel, Deadline deadline) {
  Socket connection = accept_from(listener_, deadline);
  Hello hello;
  if (!receive_hello(connection, place_.size, deadline, hello)) return;
  check(hello.channel >= channel, "a peer opens channels in the order of all");
  waiting_.insert_or_assign({hello.channel, hello.rank}, std::move(connection));
}

}  // namespace shardplan
