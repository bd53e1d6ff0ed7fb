#pragma once

#include "runtime/cuda/device_communicator.h"

namespace shardplan::cuda {

/// Collectives of a rank that is alone on its device: local copies, and sums of what the other
/// ranks would bring if they had the same.
class LocalCollectives final : public DeviceCommunicator {
 public:
  using DeviceCommunicator::DeviceCommunicator;

  void abort(const char*) noexcept override {}

 private:
  void gather(Stream stream, Group group, std::span<const std::byte> shard,
              std::span<std::byte> full) override;
  void sum_shards(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                  std::span<std::byte> shard, double scale) override;
  void sum(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
           double scale) override;
  void send_to_all(Stream, Group, std::span<std::byte>, int) override {}
};

}  // namespace shardplan::cuda
