#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/comm/fabric.h"
#include "runtime/comm/peers.h"

namespace shardplan::mpi {

/// MPI's point-to-point messages between the processes of a job, which its launcher has told of one
/// another (PMIx). A lane is a tag of MPI_COMM_WORLD. One thread at a time calls MPI: streams wait
/// outside of it, so it needs no more than MPI_THREAD_SERIALIZED.
class MpiFabric final : public Fabric {
 public:
  /// Throws SystemError when MPI knows this process by another place.
  explicit MpiFabric(const ProcessPlace& place);
  ~MpiFabric() override;
  MpiFabric(const MpiFabric&) = delete;
  MpiFabric& operator=(const MpiFabric&) = delete;

  std::unique_ptr<Lane> open() override;
  void abandon() noexcept override;

 private:
  class MpiLane;

  const std::int64_t size_;
  int lanes_ = 0;
  std::mutex mutex_;  // of all calls to MPI
  bool abandoned_ = false;
};

}  // namespace shardplan::mpi
