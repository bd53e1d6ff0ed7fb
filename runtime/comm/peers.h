#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plans/units.h"
#include "runtime/comm/socket.h"

namespace shardplan {

/// Every process is connected with every other one, several times.
constexpr std::int64_t kMostProcesses = 4096;

/// This process's place among the processes of a job, one a rank.
struct ProcessPlace {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::int64_t local_size = 1;  // processes of the job on this machine
  std::string host;             // where rank 0 listens
  std::uint16_t port = 0;
  std::string launcher;  // who says so: "mpirun", for errors
  bool mpi = false;      // whether MPI can connect it with the others
};

/// The processes of a job, found through rank 0, which tells everyone where everyone listens.
class Peers {
 public:
  /// Returns once all processes have come. `listener`: rank 0's, when something has made it
  /// already. Throws SystemError naming the ranks that do not come in time.
  Peers(const ProcessPlace& place, Socket listener, Seconds timeout_s);

  /// Its `mpi` is that of all processes.
  const ProcessPlace& place() const { return place_; }
  /// A fresh connection to every other process, by rank. All processes call it equally often.
  std::vector<Socket> connect_all();

 private:
  struct Address {
    std::string host;
    std::uint16_t port = 0;
  };

  void meet_as_first();
  void meet_as_other();
  void accept_one(std::uint32_t channel, Deadline deadline);

  ProcessPlace place_;
  const Seconds timeout_s_;
  Socket listener_;
  std::vector<Address> addresses_;  // by rank
  std::uint32_t channels_ = 0;      // that connect_all() has opened
  std::map<std::pair<std::uint32_t, std::int64_t>, Socket> waiting_;  // by channel and rank
};

}  // namespace shardplan
