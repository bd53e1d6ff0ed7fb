#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "planner/cost/collective.h"

namespace shardplan {
namespace {

/// A collective on any of the catalogue's networks.
struct AnyCollective {
  const Hardware hardware = Hardware::read(data_folder());
  CollectiveKind kind = *rc::gen::element(CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
                                          CollectiveKind::AllReduce, CollectiveKind::Broadcast);
  Bytes bytes = *rc::gen::inRange<Bytes>(1, Bytes{1} << 40);
  GroupPlacement group = any_group();
  NetworkSpec network = hardware.network_of(hardware.gpus()[any_index()]);
  CostConstants costs = hardware.costs(Profile::Cuda);

  Seconds time() const { return collective_time(kind, bytes, group, network, costs); }

 private:
  std::size_t any_index() const {
    return *rc::gen::inRange<std::size_t>(0, hardware.gpus().size());
  }
  static GroupPlacement any_group() {
    const std::int64_t nodes = *rc::gen::inRange(1, 2000);
    const std::int64_t ranks_per_node = *rc::gen::inRange(1, 73);
    return {
        .ranks = nodes * ranks_per_node, .nodes = nodes, .nic_sharers = *rc::gen::inRange(1, 9)};
  }
};

RC_GTEST_PROP(Collectives, MoreBytesNeverTakeLess, ()) {
  AnyCollective collective;
  const Seconds before = collective.time();
  collective.bytes += *rc::gen::inRange<Bytes>(0, Bytes{1} << 40);
  RC_ASSERT(collective.time() >= before);
}

RC_GTEST_PROP(Collectives, FasterLinksNeverTakeMore, ()) {
  AnyCollective collective;
  const Seconds before = collective.time();
  collective.network.intra_node_bytes_per_s *= *rc::gen::inRange(1, 10);
  collective.network.inter_node_bytes_per_s *= *rc::gen::inRange(1, 10);
  RC_ASSERT(collective.time() <= before);
}

RC_GTEST_PROP(Collectives, ARingReducesAndGathersInTwiceTheTimeOfEither, ()) {
  AnyCollective collective;
  collective.costs.collective_latency_s = 0;
  collective.costs.collective_protocols = {{.name = "ring"}};
  collective.kind = *rc::gen::element(CollectiveKind::ReduceScatter, CollectiveKind::AllGather);
  const Seconds half = collective.time();
  collective.kind = CollectiveKind::AllReduce;
  RC_ASSERT(std::abs(collective.time() - 2 * half) <= 1e-12 * half);
}

}  // namespace
}  // namespace shardplan
