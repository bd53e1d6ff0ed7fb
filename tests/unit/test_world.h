#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/process_communicator.h"
#include "runtime/comm/thread_communicator.h"
#include "tests/unit/rank_threads.h"

namespace shardplan::testing {

/// Process worlds of all ranks in this process, connected over TCP as if each had its own.
inline std::vector<std::unique_ptr<ProcessWorld>> connected_worlds(std::int64_t ranks,
                                                                   Seconds timeout_s) {
  Socket listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = port_of(listener);
  std::vector<std::unique_ptr<ProcessWorld>> worlds(ranks);
  expect_ranks(static_cast<int>(ranks), [&](int rank) {
    const ProcessPlace place{
        .rank = rank, .size = ranks, .local_size = ranks, .host = "127.0.0.1", .port = port};
    worlds[rank] = std::make_unique<ProcessWorld>(place, rank == 0 ? std::move(listener) : Socket(),
                                                  timeout_s);
  });
  return worlds;
}

enum class Kind { Threads, Processes };

/// A communicator for each rank of a mesh, of either kind.
class TestWorld {
 public:
  TestWorld(Kind kind, const Mesh& mesh, std::span<const Stream> streams, Seconds timeout_s = 60) {
    const std::int64_t ranks = mesh.replicate * mesh.shard;
    if (kind == Kind::Threads) {
      threads_.emplace(mesh, timeout_s);
      return;
    }
    worlds_ = connected_worlds(ranks, timeout_s);
    ends_.resize(ranks);
    expect_ranks(static_cast<int>(ranks),
                 [&](int rank) { ends_[rank] = worlds_[rank]->communicator(mesh, streams); });
  }

  Communicator& at(std::int64_t rank) { return threads_ ? threads_->at(rank) : *ends_[rank]; }

 private:
  std::optional<ThreadWorld> threads_;
  std::vector<std::unique_ptr<ProcessWorld>> worlds_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

}  // namespace shardplan::testing
