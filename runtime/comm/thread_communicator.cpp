#include "runtime/comm/thread_communicator.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <string>

#include "plans/error.h"
#include "runtime/comm/rank_order_sum.h"

namespace shardplan {
namespace {

void copy(const std::byte* from, std::span<std::byte> to) {
  if (from != to.data() && !to.empty()) std::memcpy(to.data(), from, to.size());
}

}  // namespace

class ThreadWorld::End final : public Communicator {
 public:
  End(ThreadWorld& world, std::int64_t rank) : world_(world), rank_(rank) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size(Group group) const override { return world_.mesh_.size(group); }
  std::int64_t place(Group group) const override {
    return world_.place(rank_, Stream::Compute, group).member;
  }

  void all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                  std::span<std::byte> full) override {
    check(full.size() == shard.size() * size(group), "the gathered buffer holds every shard");
    const auto [place, member] = world_.place(rank_, stream, group);
    const auto parts = place->enter(
        member,
        {.kind = Contribution::Kind::AllGather, .data = shard.data(), .bytes = shard.size()});
    for (std::size_t m = 0; m < parts.size(); ++m)
      copy(parts[m].data, full.subspan(m * shard.size(), shard.size()));
    place->leave(member);
  }

  void reduce_scatter(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                      std::span<std::byte> shard, double pre_scale, double post_scale) override {
    check(full.size() == shard.size() * size(group), "the scattered buffer holds every shard");
    const auto [place, member] = world_.place(rank_, stream, group);
    const auto parts = place->enter(member, {.kind = Contribution::Kind::ReduceScatter,
                                             .dtype = dtype,
                                             .data = full.data(),
                                             .bytes = full.size(),
                                             .pre_scale = pre_scale,
                                             .post_scale = post_scale});
    sum_in_rank_order(parts, member * shard.size(), shard);
    place->leave(member);
  }

  void all_reduce(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                  double pre_scale, double post_scale) override {
    const auto [place, member] = world_.place(rank_, stream, group);
    const auto parts = place->enter(member, {.kind = Contribution::Kind::AllReduce,
                                             .dtype = dtype,
                                             .data = data.data(),
                                             .bytes = data.size(),
                                             .pre_scale = pre_scale,
                                             .post_scale = post_scale});
    // Each member sums one slice and the others copy it, so all get the same bits.
    const Slice own = slice_of(data.size(), parts.size(), member);
    sum_in_rank_order(parts, own.at, data.subspan(own.at, own.bytes));
    place->sync(member);
    for (std::size_t m = 0; m < parts.size(); ++m) {
      const Slice slice = slice_of(data.size(), parts.size(), m);
      copy(parts[m].data + slice.at, data.subspan(slice.at, slice.bytes));
    }
    place->leave(member);
  }

  void broadcast(Stream stream, Group group, std::span<std::byte> data, int root) override {
    const auto [place, member] = world_.place(rank_, stream, group);
    const auto parts = place->enter(member, {.kind = Contribution::Kind::Broadcast,
                                             .data = data.data(),
                                             .bytes = data.size(),
                                             .root = root});
    copy(parts[root].data, data);
    place->leave(member);
  }

  void abort(const char* reason) noexcept override { world_.abort(reason); }

 private:
  ThreadWorld& world_;
  const std::int64_t rank_;
};

ThreadWorld::ThreadWorld(const Mesh& mesh, Seconds timeout_s) : mesh_(mesh) {
  const auto add = [&](int stream, std::string_view group, std::int64_t first, std::int64_t step,
                       std::int64_t size) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t m = 0; m < size; ++m)
      ranks.push_back(first + m * step);
    places_.push_back(std::make_unique<Rendezvous>(
        fmt::format("stream {}, group {}", to_string(static_cast<Stream>(stream)), group),
        std::move(ranks), timeout_s));
  };
  for (int stream = 0; stream < kStreams; ++stream) {
    add(stream, "world", 0, 1, mesh.replicate * mesh.shard);
    for (std::int64_t replica = 0; replica < mesh.replicate; ++replica)
      add(stream, "shard", replica * mesh.shard, 1, mesh.shard);
    for (std::int64_t index = 0; index < mesh.shard; ++index)
      add(stream, "replicate", index, mesh.shard, mesh.replicate);
    for (std::int64_t first = 0; first < mesh.replicate * mesh.shard; first += mesh.span)
      add(stream, "span", first, 1, mesh.span);
  }
  for (std::int64_t rank = 0; rank < mesh.replicate * mesh.shard; ++rank)
    ends_.push_back(std::make_unique<End>(*this, rank));
}

ThreadWorld::~ThreadWorld() = default;

Communicator& ThreadWorld::at(std::int64_t rank) { return *ends_[rank]; }

void ThreadWorld::abort(const char* reason) noexcept {
  for (const auto& place : places_)
    place->abort(reason);
}

ThreadWorld::Place ThreadWorld::place(std::int64_t rank, Stream stream, Group group) const {
  const std::int64_t replica = rank / mesh_.shard;
  const std::int64_t index = rank % mesh_.shard;
  const std::int64_t replicas = mesh_.replicate;
  const std::int64_t spans = replicas * mesh_.shard / mesh_.span;
  const std::int64_t first =
      static_cast<std::int64_t>(stream) * (1 + replicas + mesh_.shard + spans);
  const auto at = [&](std::int64_t group_index, std::int64_t member) {
    return Place{places_[first + group_index].get(), static_cast<int>(member)};
  };
  switch (group) {
    case Group::World: return at(0, rank);
    case Group::Shard: return at(1 + replica, index);
    case Group::Replicate: return at(1 + replicas + index, replica);
    case Group::Span: return at(1 + replicas + mesh_.shard + rank / mesh_.span, rank % mesh_.span);
  }
  check(false, "a group is world, shard, replicate or span");
  return {};
}

}  // namespace shardplan
