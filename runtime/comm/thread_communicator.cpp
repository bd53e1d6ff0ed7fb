#include "runtime/comm/thread_communicator.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "plans/error.h"
#include "runtime/comm/mesh_groups.h"
#include "runtime/comm/rank_order_sum.h"

namespace shardplan {
namespace {

void copy(const std::byte* from, std::span<std::byte> to) {
  if (from != to.data() && !to.empty()) std::memcpy(to.data(), from, to.size());
}

}  // namespace

class ThreadWorld::End final : public Communicator {
 public:
  End(ThreadWorld& world, std::int64_t rank) : world_(world), rank_(rank) {
    for (int stream = 0; stream < kStreams; ++stream)
      for (int group = 0; group < kGroups; ++group)
        places_[stream][group] =
            world.join(rank, static_cast<Stream>(stream), static_cast<Group>(group));
  }

  std::int64_t rank() const override { return rank_; }
  std::int64_t size(Group group) const override { return world_.mesh_.size(group); }
  std::int64_t place(Group group) const override { return place(Stream::Compute, group).member; }

  void all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                  std::span<std::byte> full) override {
    check(full.size() == shard.size() * size(group), "the gathered buffer holds every shard");
    const auto [place, member] = this->place(stream, group);
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
    const auto [place, member] = this->place(stream, group);
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
    const auto [place, member] = this->place(stream, group);
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
    const auto [place, member] = this->place(stream, group);
    const auto parts = place->enter(member, {.kind = Contribution::Kind::Broadcast,
                                             .data = data.data(),
                                             .bytes = data.size(),
                                             .root = root});
    copy(parts[root].data, data);
    place->leave(member);
  }

  void abort(const char* reason) noexcept override { world_.abort(reason); }

 private:
  const Place& place(Stream stream, Group group) const {
    return places_[static_cast<int>(stream)][static_cast<int>(group)];
  }

  ThreadWorld& world_;
  const std::int64_t rank_;
  std::array<std::array<Place, kGroups>, kStreams> places_;
};

ThreadWorld::ThreadWorld(const Mesh& mesh, Seconds timeout_s) : mesh_(mesh), timeout_s_(timeout_s) {
  for (std::int64_t rank = 0; rank < mesh.replicate * mesh.shard; ++rank)
    ends_.push_back(std::make_unique<End>(*this, rank));
}

ThreadWorld::~ThreadWorld() = default;

Communicator& ThreadWorld::at(std::int64_t rank) { return *ends_[rank]; }

void ThreadWorld::abort(const char* reason) noexcept {
  for (const auto& [place, rendezvous] : rendezvous_)
    rendezvous->abort(reason);
}

ThreadWorld::Place ThreadWorld::join(std::int64_t rank, Stream stream, Group group) {
  const GroupMembers members = members_of(mesh_, rank, group);
  auto& rendezvous = rendezvous_[{stream, group, members.first}];
  if (!rendezvous) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t m = 0; m < members.size; ++m)
      ranks.push_back(members.rank(m));
    rendezvous = std::make_unique<Rendezvous>(
        fmt::format("stream {}, group {}", to_string(stream), to_string(group)), std::move(ranks),
        timeout_s_);
  }
  return {rendezvous.get(), static_cast<int>(members.place)};
}

}  // namespace shardplan
