#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/cuda/cuda_device.h"

namespace shardplan::cuda {

/// Collectives on the streams of a device; those of Stream::Host are the host communicator's.
class DeviceCommunicator : public Communicator {
 public:
  /// Both must outlive this.
  DeviceCommunicator(Communicator& host, CudaDevice& device) : host_(host), device_(device) {}

  std::int64_t rank() const override { return host_.rank(); }
  std::int64_t size(Group group) const override { return host_.size(group); }
  std::int64_t place(Group group) const override { return host_.place(group); }

  void all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                  std::span<std::byte> full) final;
  void reduce_scatter(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                      std::span<std::byte> shard, double pre_scale, double post_scale) final;
  void all_reduce(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                  double pre_scale, double post_scale) final;
  void broadcast(Stream stream, Group group, std::span<std::byte> data, int root) final;

 protected:
  Communicator& host() { return host_; }
  CudaDevice& device() { return device_; }

 private:
  // The same of device memory, with the product of both scales.
  virtual void gather(Stream stream, Group group, std::span<const std::byte> shard,
                      std::span<std::byte> full) = 0;
  virtual void sum_shards(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                          std::span<std::byte> shard, double scale) = 0;
  virtual void sum(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                   double scale) = 0;
  virtual void send_to_all(Stream stream, Group group, std::span<std::byte> data, int root) = 0;

  Communicator& host_;
  CudaDevice& device_;
};

}  // namespace shardplan::cuda
