#pragma once

#include <nccl.h>

#include <map>
#include <tuple>

#include "runtime/cuda/device_communicator.h"

namespace shardplan::cuda {

/// Collectives of GPUs by NCCL, which sums in an order of its own. Calls are enqueued on the
/// streams of a device. A communicator of NCCL is made for each stream and group when it is first
/// used, by all ranks at the same place of their program; the host communicator brings them
/// together.
class NcclCommunicator final : public DeviceCommunicator {
 public:
  /// Both must outlive this.
  NcclCommunicator(Communicator& host, CudaDevice& device, Seconds timeout_s);
  ~NcclCommunicator() override;

  /// To be called by the rank's own thread; NCCL's operations on the device end.
  void abort(const char* reason) noexcept override;

 private:
  /// NCCL's communicator of a stream and a group, and its sums by dtype and factor.
  struct Comm {
    ncclComm_t handle = nullptr;
    void* arena = nullptr;  // as registered there; null: it is not, or NCCL has no use for that
    std::map<std::pair<ncclDataType_t, double>, ncclRedOp_t> sums;
  };

  void gather(Stream stream, Group group, std::span<const std::byte> shard,
              std::span<std::byte> full) override;
  void sum_shards(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                  std::span<std::byte> shard, double scale) override;
  void sum(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
           double scale) override;
  void send_to_all(Stream stream, Group group, std::span<std::byte> data, int root) override;

  Comm& comm(Stream stream, Group group);
  Comm connect(Group group);
  void settle(ncclResult_t result, ncclComm_t comm, const char* what);
  ncclRedOp_t operation(Comm& comm, ncclDataType_t type, double factor);
  void expect_peers();

  const Seconds timeout_s_;
  std::map<std::pair<Stream, Group>, Comm> comms_;
};

}  // namespace shardplan::cuda
