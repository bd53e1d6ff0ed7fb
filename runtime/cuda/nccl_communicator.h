#pragma once

#include <nccl.h>

#include <map>
#include <tuple>

#include "runtime/comm/communicator.h"
#include "runtime/cuda/cuda_device.h"

namespace shardplan::cuda {

/// Collectives of GPUs by NCCL, which sums in an order of its own. Calls are enqueued on the
/// streams of a device. A communicator of NCCL is made for each stream and group when it is first
/// used, by all ranks at the same place of their program. Stream::Host is the host communicator's,
/// which also brings the ranks together.
class NcclCommunicator final : public Communicator {
 public:
  /// Both must outlive this.
  NcclCommunicator(Communicator& host, CudaDevice& device, Seconds timeout_s);
  ~NcclCommunicator() override;

  std::int64_t rank() const override { return host_.rank(); }
  std::int64_t size(Group group) const override { return host_.size(group); }
  std::int64_t place(Group group) const override { return host_.place(group); }

  void all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                  std::span<std::byte> full) override;
  void reduce_scatter(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                      std::span<std::byte> shard, double pre_scale, double post_scale) override;
  void all_reduce(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                  double pre_scale, double post_scale) override;
  void broadcast(Stream stream, Group group, std::span<std::byte> data, int root) override;

  /// To be called by the rank's own thread; NCCL's operations on the device end.
  void abort(const char* reason) noexcept override;

 private:
  /// NCCL's communicator of a stream and a group, and its sums by dtype and factor.
  struct Comm {
    ncclComm_t handle = nullptr;
    std::map<std::pair<ncclDataType_t, double>, ncclRedOp_t> sums;
  };

  Comm& comm(Stream stream, Group group);
  ncclComm_t connect(Group group);
  void settle(ncclResult_t result, ncclComm_t comm, const char* what);
  ncclRedOp_t sum(Comm& comm, ncclDataType_t type, double factor);
  void expect_peers();

  Communicator& host_;
  CudaDevice& device_;
  const Seconds timeout_s_;
  std::map<std::pair<Stream, Group>, Comm> comms_;
};

}  // namespace shardplan::cuda
