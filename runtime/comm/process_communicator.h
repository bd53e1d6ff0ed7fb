#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "plans/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/fabric.h"
#include "runtime/comm/peers.h"
#include "runtime/comm/watch.h"

namespace shardplan {

/// The world of a job whose ranks are processes, as one of them sees it.
class ProcessWorld {
 public:
  /// Returns once all processes are connected. `listener`: rank 0's, when something has made it
  /// already. Throws SystemError.
  ProcessWorld(const ProcessPlace& place, Socket listener, Seconds timeout_s);
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  std::int64_t rank() const { return peers_.place().rank; }
  const ProcessPlace& place() const { return peers_.place(); }

  /// A communicator for ranks in this mesh whose collectives run on these streams and on the host
  /// stream. Sums are made in rank order, as between threads. All processes call it equally often.
  std::unique_ptr<Communicator> communicator(const Mesh& mesh, std::span<const Stream> streams);

  /// This process failed in a way that others will too: breaks the job everywhere, if it is not.
  void give_up(const std::string& reason) noexcept {
    watch_.suspect({});
    watch_.fail(reason);
  }
  /// What this process has to tell the user about the failure of the job, which it saw as `own`;
  /// nothing when another one does.
  std::optional<std::string> report(const std::string& own) const { return watch_.report(own); }

 private:
  class End;

  const Seconds timeout_s_;
  Peers peers_;
  Watch watch_;
  const std::unique_ptr<Fabric> fabric_;
};

}  // namespace shardplan
