#include "runtime/comm/process_communicator.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "plans/error.h"
#include "runtime/comm/channel.h"
#include "runtime/comm/mesh_groups.h"
#include "runtime/comm/rank_order_sum.h"
#include "runtime/comm/tcp_fabric.h"
#include "runtime/plugin.h"
#include "runtime/plugin_entry.h"

namespace shardplan {
namespace {

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.data() != to.data() && !to.empty()) std::memcpy(to.data(), from.data(), to.size());
}

/// The ranks of one group, in order, and what they exchange.
struct Members {
  std::size_t own = 0;  // this rank's place
  std::vector<Channel::Part> parts;
  std::vector<Contribution> contributions;
};

Members exchange_among(const GroupMembers& group) {
  Members members;
  members.own = static_cast<std::size_t>(group.place);
  for (std::int64_t m = 0; m < group.size; ++m)
    members.parts.push_back({.rank = group.rank(m), .sent = {}, .received = {}});
  members.contributions.resize(members.parts.size());
  return members;
}

std::unique_ptr<Fabric> fabric_of(Peers& peers) {
  if (peers.place().mpi) return find_mpi()->connect(peers.place());
  return std::make_unique<TcpFabric>(peers);
}

}  // namespace

class ProcessWorld::End final : public Communicator {
 public:
  End(ProcessWorld& world, const Mesh& mesh) : world_(world), mesh_(mesh) {
    for (int stream = 0; stream < kStreams; ++stream)
      for (int group = 0; group < kGroups; ++group)
        members_[stream][group] =
            exchange_among(members_of(mesh, world.rank(), static_cast<Group>(group)));
  }

  void open(Stream stream) {
    auto& channel = channels_[static_cast<int>(stream)];
    if (channel) return;
    channel.emplace(std::string(to_string(stream)), rank(), *world_.fabric_, world_.watch_,
                    world_.timeout_s_);
  }

  std::int64_t rank() const override { return world_.rank(); }
  std::int64_t size(Group group) const override { return mesh_.size(group); }
  std::int64_t place(Group group) const override {
    return static_cast<std::int64_t>(members_[0][static_cast<int>(group)].own);
  }

  void all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                  std::span<std::byte> full) override {
    check(full.size() == shard.size() * size(group), "the gathered buffer holds every shard");
    Members& members = fresh(stream, group);
    for (std::size_t m = 0; m < members.parts.size(); ++m) {
      members.parts[m].sent = shard;
      members.parts[m].received = full.subspan(m * shard.size(), shard.size());
    }
    exchange(stream, group, {.kind = Contribution::Kind::AllGather, .bytes = shard.size()});
    copy(shard, members.parts[members.own].received);
  }

  void reduce_scatter(Stream stream, Group group, Dtype dtype, std::span<const std::byte> full,
                      std::span<std::byte> shard, double pre_scale, double post_scale) override {
    check(full.size() == shard.size() * size(group), "the scattered buffer holds every shard");
    sum_parts(
        stream, group,
        {.kind = Contribution::Kind::ReduceScatter,
         .dtype = dtype,
         .data = full.data(),
         .bytes = full.size(),
         .pre_scale = pre_scale,
         .post_scale = post_scale},
        [&](std::size_t m) {
          return Slice{m * shard.size(), shard.size()};
        },
        shard);
  }

  void all_reduce(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                  double pre_scale, double post_scale) override {
    // Each member sums one slice and sends it to the others, so all get the same bits.
    const Contribution own{.kind = Contribution::Kind::AllReduce,
                           .dtype = dtype,
                           .data = data.data(),
                           .bytes = data.size(),
                           .pre_scale = pre_scale,
                           .post_scale = post_scale};
    const auto members = static_cast<std::size_t>(size(group));
    const auto part_of = [&](std::size_t m) { return slice_of(data.size(), members, m); };
    const Slice mine = part_of(static_cast<std::size_t>(place(group)));
    const std::span<std::byte> result = data.subspan(mine.at, mine.bytes);
    sum_parts(stream, group, own, part_of, result);

    Members& gathered = fresh(stream, group);
    for (std::size_t m = 0; m < members; ++m) {
      const Slice slice = part_of(m);
      gathered.parts[m].sent = result;
      gathered.parts[m].received = data.subspan(slice.at, slice.bytes);
    }
    exchange(stream, group, own);
  }

  void broadcast(Stream stream, Group group, std::span<std::byte> data, int root) override {
    Members& members = fresh(stream, group);
    const bool is_root = static_cast<int>(members.own) == root;
    for (std::size_t m = 0; m < members.parts.size(); ++m) {
      if (is_root) members.parts[m].sent = data;
      if (static_cast<int>(m) == root) members.parts[m].received = data;
    }
    exchange(stream, group,
             {.kind = Contribution::Kind::Broadcast, .bytes = data.size(), .root = root});
  }

  void abort(const char* reason) noexcept override { world_.watch_.fail(reason); }

 private:
  Channel& channel(Stream stream) {
    auto& channel = channels_[static_cast<int>(stream)];
    check(channel.has_value(), "the streams of all collectives are opened");
    return *channel;
  }

  /// The members of the group, with nothing to exchange yet.
  Members& fresh(Stream stream, Group group) {
    Members& members = members_[static_cast<int>(stream)][static_cast<int>(group)];
    for (Channel::Part& part : members.parts)
      part = {.rank = part.rank, .sent = {}, .received = {}};
    return members;
  }

  void exchange(Stream stream, Group group, const Contribution& own) {
    Members& members = members_[static_cast<int>(stream)][static_cast<int>(group)];
    channel(stream).exchange(to_string(group), own, members.parts);
  }

  /// Every member sends part m of its bytes to member m, and sums what it gets into `out`.
  template <typename PartOf>
  void sum_parts(Stream stream, Group group, const Contribution& own, PartOf part_of,
                 std::span<std::byte> out) {
    Members& members = fresh(stream, group);
    const auto others = channel(stream).scratch(out.size() * members.parts.size());
    const std::span bytes(own.data, own.bytes);
    for (std::size_t m = 0; m < members.parts.size(); ++m) {
      const Slice slice = part_of(m);
      const auto sent = bytes.subspan(slice.at, slice.bytes);
      const bool is_own = m == members.own;
      members.parts[m].sent = sent;
      members.parts[m].received = others.subspan(m * out.size(), out.size());
      members.contributions[m] = own;
      members.contributions[m].data = is_own ? sent.data() : members.parts[m].received.data();
    }
    exchange(stream, group, own);
    sum_in_rank_order(members.contributions, 0, out);
  }

  ProcessWorld& world_;
  const Mesh mesh_;
  std::array<std::optional<Channel>, kStreams> channels_;
  std::array<std::array<Members, kGroups>, kStreams> members_;  // each stream has its own thread
};

ProcessWorld::ProcessWorld(const ProcessPlace& place, Socket listener, Seconds timeout_s)
    : timeout_s_(timeout_s),
      peers_(place, std::move(listener), timeout_s),
      watch_(place.rank, peers_.connect_all()),
      fabric_(fabric_of(peers_)) {}

ProcessWorld::~ProcessWorld() {
  if (watch_.broken()) fabric_->abandon();
}

std::unique_ptr<Communicator> ProcessWorld::communicator(const Mesh& mesh,
                                                         std::span<const Stream> streams) {
  auto end = std::make_unique<End>(*this, mesh);
  end->open(Stream::Host);
  for (const Stream stream : streams)
    end->open(stream);
  return end;
}

}  // namespace shardplan
