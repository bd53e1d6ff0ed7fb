#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plans/plan.h"
#include "plans/units.h"

namespace shardplan {

/// One rank's end of the collectives of a job. Every call blocks the calling stream until this
/// rank's part is done; all ranks of a group issue the same calls on it in the same order. Streams
/// may use a communicator at the same time, each for its own sequence of calls. A call throws
/// SystemError when a peer has failed, timed out, or issued another collective.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size(Group group) const = 0;
  /// This rank's place among the ranks of its group, from 0 on.
  virtual std::int64_t place(Group group) const = 0;

  /// `full` holds size(group) shards in group order, apart from `shard`: that a shard lies inside
  /// it at its own place, another one on every rank, is nothing that one program for all ranks can
  /// say.
  virtual void all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                          std::span<std::byte> full) = 0;
  /// shard = post_scale * sum over ranks, in rank order, of pre_scale * their part of `full`.
  virtual void reduce_scatter(Stream stream, Group group, Dtype dtype,
                              std::span<const std::byte> full, std::span<std::byte> shard,
                              double pre_scale, double post_scale) = 0;
  /// In place; the same bits on all ranks.
  virtual void all_reduce(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                          double pre_scale, double post_scale) = 0;
  virtual void broadcast(Stream stream, Group group, std::span<std::byte> data, int root) = 0;

  /// Wakes all peers that wait in a collective; their calls throw. Never throws.
  virtual void abort(const char* reason) noexcept = 0;
};

}  // namespace shardplan
