#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/unit/rank_threads.h"
#include "tests/unit/test_world.h"

namespace shardplan {
namespace {

template <typename T>
using PerRank = std::vector<std::vector<T>>;

/// Small integers: every order of summation is exact, so results compare with ==.
template <typename T>
PerRank<T> integers(int ranks, int elems) {
  const auto number = rc::gen::map(rc::gen::inRange(-64, 64), [](int i) { return T(i); });
  return *rc::gen::container<PerRank<T>>(ranks, rc::gen::container<std::vector<T>>(elems, number));
}

using testing::Kind;

constexpr std::array kStreamsUsed{Stream::AllGather, Stream::ReduceScatter, Stream::AllReduce};

Kind some_kind() { return *rc::gen::element(Kind::Threads, Kind::Processes); }
int some_ranks() { return *rc::gen::element(1, 2, 3, 4, 7); }
/// Around a cache line and around a block of the sum, and anything small.
int some_elems() {
  return *rc::gen::oneOf(rc::gen::inRange(0, 40),
                         rc::gen::element(127, 128, 129, 2047, 2048, 2049, 5000));
}

template <typename T>
std::vector<T> sum_of(const PerRank<T>& parts, T scale) {
  std::vector<T> sum(parts[0].size(), T{0});
  for (const auto& part : parts)
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += part[i];
  for (T& value : sum)
    value *= scale;
  return sum;
}

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <typename T>
constexpr Dtype kDtype = sizeof(T) == 4 ? Dtype::Float32 : Dtype::Float64;

template <typename T>
void all_reduce_is_the_sum_on_all_ranks() {
  const int ranks = some_ranks();
  PerRank<T> data = integers<T>(ranks, some_elems());
  const std::vector<T> expected = sum_of(data, T{2});
  testing::TestWorld world(some_kind(), {.replicate = ranks, .shard = 1}, kStreamsUsed);
  testing::expect_ranks(ranks, [&](int rank) {
    world.at(rank).all_reduce(Stream::AllReduce, Group::World, kDtype<T>, bytes_of(data[rank]), 4,
                              0.5);
  });
  for (const auto& result : data)
    RC_ASSERT(result == expected);
}

RC_GTEST_PROP(Collectives, AllReduceIsTheSumOnAllRanksInFloat32, ()) {
  all_reduce_is_the_sum_on_all_ranks<float>();
}
RC_GTEST_PROP(Collectives, AllReduceIsTheSumOnAllRanksInFloat64, ()) {
  all_reduce_is_the_sum_on_all_ranks<double>();
}

RC_GTEST_PROP(Collectives, ReduceScatterThenAllGatherIsAllReduce, ()) {
  const int ranks = some_ranks();
  const int shard = some_elems();
  PerRank<float> data = integers<float>(ranks, shard * ranks);
  const std::vector<float> expected = sum_of(data, 1.0f);
  PerRank<float> shards(ranks, std::vector<float>(shard));
  PerRank<float> results(ranks, std::vector<float>(shard * ranks));
  testing::TestWorld world(some_kind(), {.replicate = 1, .shard = ranks}, kStreamsUsed);
  testing::expect_ranks(ranks, [&](int rank) {
    Communicator& end = world.at(rank);
    end.reduce_scatter(Stream::ReduceScatter, Group::Shard, Dtype::Float32, bytes_of(data[rank]),
                       bytes_of(shards[rank]), 1, 1);
    end.all_gather(Stream::AllGather, Group::Shard, bytes_of(shards[rank]),
                   bytes_of(results[rank]));
  });
  for (const auto& result : results)
    RC_ASSERT(result == expected);
}

RC_GTEST_PROP(Collectives, ShardsMayLieInTheirPlaceOfTheWhole, ()) {
  const int ranks = some_ranks();
  const int shard = some_elems();
  PerRank<float> data = integers<float>(ranks, shard * ranks);
  const std::vector<float> expected = sum_of(data, 1.0f);
  testing::TestWorld world(some_kind(), {.replicate = 1, .shard = ranks}, kStreamsUsed);
  testing::expect_ranks(ranks, [&](int rank) {
    const std::size_t bytes = shard * sizeof(float);
    const auto full = bytes_of(data[rank]);
    const auto own = full.subspan(rank * bytes, bytes);
    world.at(rank).reduce_scatter(Stream::AllGather, Group::Shard, Dtype::Float32, full, own, 1, 1);
    world.at(rank).all_gather(Stream::AllGather, Group::Shard, own, full);
  });
  for (const auto& result : data)
    RC_ASSERT(result == expected);
}

RC_GTEST_PROP(Collectives, BroadcastGivesTheRootsData, ()) {
  const int ranks = some_ranks();
  PerRank<float> data = integers<float>(ranks, some_elems());
  const int root = *rc::gen::inRange(0, ranks);
  const std::vector<float> expected = data[root];
  testing::TestWorld world(some_kind(), {.replicate = 1, .shard = ranks}, kStreamsUsed);
  testing::expect_ranks(ranks, [&](int rank) {
    world.at(rank).broadcast(Stream::AllReduce, Group::World, bytes_of(data[rank]), root);
  });
  for (const auto& result : data)
    RC_ASSERT(result == expected);
}

class CollectivesOf : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, CollectivesOf, ::testing::Values(Kind::Threads, Kind::Processes));

TEST_P(CollectivesOf, StreamsDoNotWaitForEachOther) {
  constexpr int kRanks = 3;
  constexpr int kCalls = 50;
  testing::TestWorld world(GetParam(), {.replicate = 1, .shard = kRanks}, kStreamsUsed);
  // Each rank uses its two streams from two threads, at its own pace.
  testing::expect_ranks(2 * kRanks, [&](int thread) {
    const int rank = thread / 2;
    const Stream stream = thread % 2 == 0 ? Stream::AllReduce : Stream::ReduceScatter;
    for (int call = 0; call < kCalls; ++call) {
      std::vector<float> value{static_cast<float>(call + rank)};
      world.at(rank).all_reduce(stream, Group::World, Dtype::Float32, bytes_of(value), 1, 1);
      EXPECT_EQ(value[0], static_cast<float>(kRanks * call + 3));
    }
  });
}

TEST_P(CollectivesOf, SumsRunInRankOrder) {
  // 1 is lost in single precision when it is not added last.
  PerRank<float> data{{1e8f}, {-1e8f}, {1}};
  testing::TestWorld world(GetParam(), {.replicate = 1, .shard = 3}, kStreamsUsed);
  testing::expect_ranks(3, [&](int rank) {
    world.at(rank).all_reduce(Stream::AllReduce, Group::World, Dtype::Float32, bytes_of(data[rank]),
                              1, 1);
  });
  EXPECT_EQ(data, (PerRank<float>{{1}, {1}, {1}}));
}

/// What all ranks hold after reductions and a gather of the same random numbers.
PerRank<float> results_of(Kind kind, const Mesh& mesh, int shard_elems) {
  const auto ranks = static_cast<int>(mesh.replicate * mesh.shard);
  PerRank<float> data(ranks, std::vector<float>(shard_elems * mesh.shard));
  std::mt19937 numbers(7);
  for (auto& of_rank : data)
    for (float& value : of_rank)
      value = std::normal_distribution<float>()(numbers);
  testing::TestWorld world(kind, mesh, kStreamsUsed);
  testing::expect_ranks(ranks, [&](int rank) {
    Communicator& end = world.at(rank);
    std::vector<float> shard(shard_elems);
    end.reduce_scatter(Stream::ReduceScatter, Group::Shard, Dtype::Float32, bytes_of(data[rank]),
                       bytes_of(shard), 0.3, 0.7);
    end.all_reduce(Stream::AllReduce, Group::Replicate, Dtype::Float32, bytes_of(shard), 0.1, 3);
    end.all_reduce(Stream::AllReduce, Group::World, Dtype::BFloat16, bytes_of(shard), 1, 0.25);
    end.all_gather(Stream::AllGather, Group::Shard, bytes_of(shard), bytes_of(data[rank]));
  });
  return data;
}

TEST(Collectives, ProcessesGetTheBitsOfThreads) {
  for (const Mesh& mesh : {Mesh{.replicate = 1, .shard = 5}, Mesh{.replicate = 3, .shard = 2},
                           Mesh{.replicate = 4, .shard = 1}}) {
    const auto threads = results_of(Kind::Threads, mesh, 1111);
    const auto processes = results_of(Kind::Processes, mesh, 1111);
    for (std::size_t rank = 0; rank < threads.size(); ++rank)
      EXPECT_EQ(std::memcmp(threads[rank].data(), processes[rank].data(), 4 * threads[rank].size()),
                0);
  }
}

}  // namespace
}  // namespace shardplan
