#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/cuda/cuda_device.h"

namespace shardplan::cuda {

/// Collectives of a rank that is alone on its device: local copies, and sums of what the other
/// ranks would bring if they had the same. Stream::Host is the host communicator's.
class LocalCollectives final : public Communicator {
 public:
  /// Both must outlive this.
  LocalCollectives(Communicator& host, CudaDevice& device) : host_(host), device_(device) {}

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
  void abort(const char*) noexcept override {}

 private:
  Communicator& host_;
  CudaDevice& device_;
};

}  // namespace shardplan::cuda
