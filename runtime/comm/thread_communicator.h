#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "plans/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/rendezvous.h"

namespace shardplan {

/// The communicators of a job whose ranks are threads of this process. Ranks read each other's
/// memory directly, so all buffers must outlive the last call. Rank = replica * mesh.shard + index
/// in the shard group.
class ThreadWorld {
 public:
  /// A collective that not all ranks join within `timeout_s` fails.
  ThreadWorld(const Mesh& mesh, Seconds timeout_s);
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  /// The end of one rank; lives as long as this object.
  Communicator& at(std::int64_t rank);
  void abort(const char* reason) noexcept;

 private:
  struct Place {
    Rendezvous* rendezvous = nullptr;
    int member = 0;
  };
  class End;  // a rank's Communicator

  /// Where a rank meets the other members of its group, which is made for the first of them.
  Place join(std::int64_t rank, Stream stream, Group group);

  const Mesh mesh_;
  const Seconds timeout_s_;
  /// By stream, group and first member.
  std::map<std::tuple<Stream, Group, std::int64_t>, std::unique_ptr<Rendezvous>> rendezvous_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

}  // namespace shardplan
