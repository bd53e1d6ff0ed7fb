#include "runtime/comm/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "plans/error.h"
#include "runtime/start_thread.h"

namespace shardplan {
namespace {

enum Kind : std::uint32_t { Failed, Left };

struct Header {
  std::uint32_t kind = Failed;
  std::uint32_t text_bytes = 0;
  std::int64_t reporter = 0;
};
constexpr std::size_t kLongestText = 4096;

/// How long a closed connection may stay unexplained: a message that came before its end is here.
constexpr auto kExplanation = std::chrono::seconds(5);
/// Processes that die together are all seen to be dead after this.
constexpr auto kSettled = std::chrono::milliseconds(200);

Socket event() {
  Socket made(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made) throw SystemError(fmt::format("cannot make an event: {}", std::strerror(errno)));
  return made;
}

void raise(const Socket& event) noexcept { eventfd_write(event.get(), 1); }

}  // namespace

Watch::Watch(std::int64_t rank, std::vector<Socket> connections)
    : rank_(rank), wake_(event()), end_(event()), peers_(connections.size()) {
  for (std::size_t peer = 0; peer < connections.size(); ++peer)
    peers_[peer].connection = std::move(connections[peer]);
  listener_ = start_thread([this] { listen(); });
}

Watch::~Watch() {
  raise(end_);
  listener_.join();
  tell_all(Left, rank_, "");
}

std::string Watch::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void Watch::listen() {
  std::vector<pollfd> ends;
  std::vector<std::size_t> ranks;
  for (;;) {
    ends = {{end_.get(), POLLIN, 0}};
    ranks = {0};
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
        if (!peers_[rank].connection || peers_[rank].state != State::There) continue;
        ends.push_back({peers_[rank].connection.get(), POLLIN, 0});
        ranks.push_back(rank);
      }
    }
    if (poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return;
    if (ends[0].revents != 0) return;
    for (std::size_t i = 1; i < ends.size(); ++i)
      if (ends[i].revents != 0) receive(ranks[i]);
  }
}

void Watch::receive(std::size_t rank) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[rank];
  std::array<std::byte, 1024> block;
  const Moved got = receive_some(peer.connection, block);
  peer.received.insert(peer.received.end(), block.begin(), block.begin() + got.bytes);
  while (take_message(peer)) {
  }
  if (got.closed && peer.state == State::There) lose(rank);
  changed_.notify_all();
}

/// The first whole message of those received; false: there is none.
bool Watch::take_message(Peer& peer) {
  Header header;
  if (peer.received.size() < sizeof(header)) return false;
  std::memcpy(&header, peer.received.data(), sizeof(header));
  const std::size_t text_bytes = std::min<std::size_t>(header.text_bytes, kLongestText);
  if (peer.received.size() < sizeof(header) + text_bytes) return false;
  const std::string text(reinterpret_cast<const char*>(peer.received.data()) + sizeof(header),
                         text_bytes);
  peer.received.erase(peer.received.begin(),
                      peer.received.begin() + sizeof(header) + static_cast<long>(text_bytes));
  if (header.kind == Left) {
    peer.state = State::Left;
  } else if (!broken()) {
    told_ = true;
    set_broken(text, header.reporter);
  }
  return true;
}

void Watch::lose(std::size_t rank) {
  peers_[rank].state = State::Lost;
  lost_ = lost_ || !broken();
  set_broken(fmt::format("rank {} is gone: its process ended", rank), lowest_present());
}

/// With the lock held. The first reason stays.
void Watch::set_broken(std::string_view reason, std::int64_t reporter) {
  if (broken()) return;
  reason_ = reason;
  reporter_ = reporter;
  broken_.store(true, std::memory_order_release);
  raise(wake_);
}

void Watch::suspect(std::span<const std::int64_t> missing) noexcept {
  const std::lock_guard lock(mutex_);
  if (broken()) return;
  suspects_ = true;
  missing_.assign(missing.begin(), missing.end());
}

void Watch::fail(std::string_view reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (broken()) return;
  set_broken(reason, suspects_ ? lowest_present() : rank_);
  tell_all(Failed, reporter_, reason);
}

void Watch::explain_loss(std::int64_t peer) noexcept {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kExplanation, [&] { return broken(); })) lose(peer);
}

std::optional<std::string> Watch::report(const std::string& own) const {
  std::unique_lock lock(mutex_);
  const auto settle = [&] { changed_.wait_for(lock, kSettled, [] { return false; }); };
  const auto reporter = [&] {
    const bool silent = reporter_ != rank_ && peers_[reporter_].state == State::Lost;
    return silent ? lowest_present() : reporter_;
  };
  if (lost_) settle();
  if (reporter() == rank_) return told_ ? reason_ : own;
  // Launchers kill a job when the first of its processes ends; that must not be before it is told.
  changed_.wait_for(lock, kExplanation, [&] { return peers_[reporter()].state != State::There; });
  settle();
  return reporter() == rank_ ? std::optional(own) : std::nullopt;
}

std::int64_t Watch::lowest_present() const {
  for (std::int64_t rank = 0; rank < static_cast<std::int64_t>(peers_.size()); ++rank) {
    const bool lost = rank != rank_ && peers_[rank].state == State::Lost;
    if (!lost && std::ranges::find(missing_, rank) == missing_.end()) return rank;
  }
  return rank_;
}

void Watch::tell_all(std::uint32_t kind, std::int64_t reporter, std::string_view text) noexcept {
  text = text.substr(0, kLongestText);
  const Header header{kind, static_cast<std::uint32_t>(text.size()), reporter};
  std::array<std::byte, sizeof(header) + kLongestText> message;
  std::memcpy(message.data(), &header, sizeof(header));
  if (!text.empty()) std::memcpy(message.data() + sizeof(header), text.data(), text.size());
  // Best effort: a peer that takes no message notices the end of the connections.
  for (Peer& peer : peers_)
    if (peer.connection)
      send_some(peer.connection, std::span(message).first(sizeof(header) + text.size()));
}

}  // namespace shardplan
