#pragma once

#include <cstdint>
#include <optional>

#include "plans/units.h"
#include "runtime/comm/peers.h"

namespace shardplan {

/// What launch_ranks() returns as: one of the ranks, or the launcher after all of them.
struct Launched {
  std::optional<ProcessPlace> place;  // of a rank's process; its host and port are the listener's
  Socket listener;                    // rank 0's
  int status = 0;                     // of the launcher: 0 when all ranks ended with 0, else theirs
};

/// Forks a process for each rank of a job on this machine, which must run no threads yet, and waits
/// for them: returns once in each of them and, when all are over, here. SIGTERM is handed on to the
/// ranks. Once one has failed the others get `grace_s` to end, then they are killed; they are too
/// when the launcher dies. Throws SystemError, in the launcher, when ranks were ended by signals
/// and no other one was left to say so.
Launched launch_ranks(std::int64_t ranks, Seconds grace_s);

}  // namespace shardplan
