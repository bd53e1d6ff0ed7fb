#include "runtime/cuda/device_communicator.h"

#include "plans/error.h"

namespace shardplan::cuda {

void DeviceCommunicator::all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                                    std::span<std::byte> full) {
  if (stream == Stream::Host) return host_.all_gather(stream, group, shard, full);
  shardplan::check(full.size() == shard.size() * size(group),
                   "the gathered buffer holds every shard");
  gather(stream, group, shard, full);
}

void DeviceCommunicator::reduce_scatter(Stream stream, Group group, Dtype dtype,
                                        std::span<const std::byte> full, std::span<std::byte> shard,
                                        double pre_scale, double post_scale) {
  if (stream == Stream::Host)
    return host_.reduce_scatter(stream, group, dtype, full, shard, pre_scale, post_scale);
  shardplan::check(full.size() == shard.size() * size(group),
                   "the scattered buffer holds every shard");
  sum_shards(stream, group, dtype, full, shard, pre_scale * post_scale);
}

void DeviceCommunicator::all_reduce(Stream stream, Group group, Dtype dtype,
                                    std::span<std::byte> data, double pre_scale,
                                    double post_scale) {
  if (stream == Stream::Host)
    return host_.all_reduce(stream, group, dtype, data, pre_scale, post_scale);
  sum(stream, group, dtype, data, pre_scale * post_scale);
}

void DeviceCommunicator::broadcast(Stream stream, Group group, std::span<std::byte> data,
                                   int root) {
  if (stream == Stream::Host) return host_.broadcast(stream, group, data, root);
  send_to_all(stream, group, data, root);
}

}  // namespace shardplan::cuda
