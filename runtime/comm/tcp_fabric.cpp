#include "runtime/comm/tcp_fabric.h"

#include <poll.h>

#include <utility>
#include <vector>

namespace shardplan {
namespace {

class TcpLane final : public Lane {
 public:
  explicit TcpLane(std::vector<Socket> connections) : connections_(std::move(connections)) {
    polled_.reserve(connections_.size() + 1);
  }

  Moved send(std::int64_t peer, std::span<const std::byte> bytes) override {
    return send_some(connections_[peer], bytes);
  }

  Moved receive(std::int64_t peer, std::span<std::byte> bytes) override {
    return receive_some(connections_[peer], bytes);
  }

  bool wait(std::span<const Pending> pending, int wake, Deadline deadline) override {
    polled_.assign(1, {wake, POLLIN, 0});
    for (const Pending& peer : pending) {
      const int events = (peer.out ? POLLOUT : 0) | (peer.in ? POLLIN : 0);
      polled_.push_back({connections_[peer.rank].get(), static_cast<short>(events), 0});
    }
    return poll(polled_.data(), polled_.size(), milliseconds_until(deadline)) != 0;
  }

 private:
  const std::vector<Socket> connections_;  // by rank
  std::vector<pollfd> polled_;
};

}  // namespace

std::unique_ptr<Lane> TcpFabric::open() { return std::make_unique<TcpLane>(peers_.connect_all()); }

}  // namespace shardplan
