#pragma once

#include <memory>

#include "runtime/comm/fabric.h"
#include "runtime/comm/peers.h"

namespace shardplan {

/// Every lane has a connection to every other process.
class TcpFabric final : public Fabric {
 public:
  explicit TcpFabric(Peers& peers) : peers_(peers) {}

  std::unique_ptr<Lane> open() override;
  void abandon() noexcept override {}

 private:
  Peers& peers_;
};

}  // namespace shardplan
