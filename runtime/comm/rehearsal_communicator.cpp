#include "runtime/comm/rehearsal_communicator.h"

#include <cstring>

#include "plans/error.h"
#include "runtime/comm/mesh_groups.h"
#include "runtime/comm/rank_order_sum.h"

namespace shardplan {
namespace {

/// `out` = the sum that `members` equal contributions of these bytes make.
void sum_of_equals(Contribution own, std::int64_t members, std::size_t first_byte,
                   std::span<std::byte> out) {
  own.pre_scale *= static_cast<double>(members);
  sum_in_rank_order(std::span(&own, 1), first_byte, out);
}

}  // namespace

std::int64_t RehearsalCommunicator::place(Group group) const {
  return members_of(mesh_, rank_, group).place;
}

void RehearsalCommunicator::all_gather(Stream, Group group, std::span<const std::byte> shard,
                                       std::span<std::byte> full) {
  check(full.size() == shard.size() * size(group), "the gathered buffer holds every shard");
  for (std::size_t at = 0; at < full.size(); at += shard.size())
    if (full.data() + at != shard.data()) std::memcpy(full.data() + at, shard.data(), shard.size());
}

void RehearsalCommunicator::reduce_scatter(Stream, Group group, Dtype dtype,
                                           std::span<const std::byte> full,
                                           std::span<std::byte> shard, double pre_scale,
                                           double post_scale) {
  sum_of_equals({.dtype = dtype,
                 .data = full.data(),
                 .bytes = full.size(),
                 .pre_scale = pre_scale,
                 .post_scale = post_scale},
                size(group), place(group) * shard.size(), shard);
}

void RehearsalCommunicator::all_reduce(Stream, Group group, Dtype dtype, std::span<std::byte> data,
                                       double pre_scale, double post_scale) {
  sum_of_equals({.dtype = dtype,
                 .data = data.data(),
                 .bytes = data.size(),
                 .pre_scale = pre_scale,
                 .post_scale = post_scale},
                size(group), 0, data);
}

}  // namespace shardplan
