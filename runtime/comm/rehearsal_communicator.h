#pragma once

#include "plans/plan.h"
#include "runtime/comm/communicator.h"

namespace shardplan {

/// The end of one rank of a world of which no other rank exists: every collective is a local copy,
/// as if all members brought what this rank brings. Memory and compute are those of the large job;
/// numbers are not.
class RehearsalCommunicator final : public Communicator {
 public:
  RehearsalCommunicator(const Mesh& mesh, std::int64_t rank) : mesh_(mesh), rank_(rank) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size(Group group) const override { return mesh_.size(group); }
  std::int64_t place(Group group) const override;

  void all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                  std::span<std::byte> full) override;
  void reduce_scatter(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                      std::span<std::byte> shard, double pre_scale, double post_scale) override;
  void all_reduce(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                  double pre_scale, double post_scale) override;
  void broadcast(Stream, Group, std::span<std::byte>, int) override {}
  void abort(const char*) noexcept override {}

 private:
  const Mesh mesh_;
  const std::int64_t rank_;
};

}  // namespace shardplan
