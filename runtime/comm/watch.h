#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "plans/units.h"
#include "runtime/comm/socket.h"

namespace shardplan {

/// Tells each process of a job when another one fails or dies, at any time, and settles which of
/// them tells the user.
class Watch {
 public:
  /// `connections`: to every other process, by rank; a thread listens to them from now on.
  Watch(std::int64_t rank, std::vector<Socket> connections);
  /// Takes leave, so that the end of this process is no failure to the others.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Becomes readable when the job has failed, and stays so.
  int descriptor() const { return wake_.get(); }
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  /// Why, once it is broken.
  std::string reason() const;

  /// This process waited in vain for these ranks, or (none) cannot tell who is wrong. Others will
  /// notice as well: of those that are there, the lowest rank tells the user.
  void suspect(std::span<const std::int64_t> missing) noexcept;
  /// This process failed: breaks the job everywhere. Nothing when it is broken already.
  void fail(std::string_view reason) noexcept;
  /// The connection to a peer ended: waits until it is clear why, and breaks the job if nothing
  /// else has.
  void explain_loss(std::int64_t peer) noexcept;

  /// What this process has to tell the user about the failure of the job, which it saw as `own`;
  /// nothing when another one does, which has then done so.
  std::optional<std::string> report(const std::string& own) const;

 private:
  enum class State { There, Left, Lost };
  struct Peer {
    Socket connection;
    std::vector<std::byte> received;  // of a message that is not complete
    State state = State::There;
  };

  void listen();
  void receive(std::size_t rank);
  bool take_message(Peer& peer);
  void set_broken(std::string_view reason, std::int64_t reporter);
  void lose(std::size_t rank);
  void tell_all(std::uint32_t kind, std::int64_t reporter, std::string_view text) noexcept;
  std::int64_t lowest_present() const;

  const std::int64_t rank_;
  Socket wake_;
  Socket end_;  // of the listening thread
  std::atomic<bool> broken_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::string reason_;
  std::int64_t reporter_ = 0;
  bool told_ = false;                  // the reason is a peer's
  bool lost_ = false;                  // the reason is that a peer's process ended
  bool suspects_ = false;              // whom, if anybody, missing_ says
  std::vector<std::int64_t> missing_;  // ranks that can report nothing, though they are there
  std::thread listener_;
};

}  // namespace shardplan
