// That the fake of CUDA finds what it is there to find.
#include <gmock/gmock.h>
#include <nccl.h>

#include <thread>

#include "tests/fake_cuda/testing.h"

namespace fake_cuda {
namespace {

using ::testing::HasSubstr;
using testing::Memory;
using testing::TestStream;

class Fake : public ::testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    set_devices(2, 1 << 20);
    set_schedule(GetParam(), 7);
    set_patience(0.2);
  }
  void TearDown() override {
    take_fault();
    set_patience(30);
  }
};
INSTANTIATE_TEST_SUITE_P(Schedules, Fake,
                         ::testing::Values(Schedule::Eager, Schedule::Lazy, Schedule::Random));

__global__ void add_one(std::span<const float> x, std::span<float> out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < out.size()) out[i] = x[i] + 1;
}
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), int threads, cudaStream_t stream,
            const Arguments&... arguments) {
  cudaLaunchConfig_t config;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

enum class Event { Recorded, Forgotten };

/// One stream writes what another reads.
std::string handed_over(Event kind) {
  Memory<float> first(64);
  Memory<float> second(64);
  Memory<float> third(64);
  std::ranges::fill(first.span(), 1.0F);
  TestStream writer;
  TestStream reader;
  cudaEvent_t written = nullptr;
  cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
  launch(add_one, 64, writer, first.span(), second.span());
  if (kind == Event::Recorded) {
    cudaEventRecord(written, writer);
    cudaStreamWaitEvent(reader, written, 0);
  }
  launch(add_one, 64, reader, second.span(), third.span());
  reader.finish();
  if (kind == Event::Recorded) {
    EXPECT_EQ(third.span()[63], 3);
  }
  const std::string fault = take_fault();
  cudaEventDestroy(written);
  return fault;
}

TEST_P(Fake, FindsBytesThatTwoStreamsTouchInNoOrder) {
  EXPECT_EQ(handed_over(Event::Recorded), "");
  EXPECT_THAT(handed_over(Event::Forgotten), HasSubstr("race: nothing orders"));
}

TEST_P(Fake, ReadersNeedNoOrderAmongThemselves) {
  Memory<float> x(64);
  Memory<float> out(128);
  TestStream a;
  TestStream b;
  launch(add_one, 64, a, x.span(), out.span().first(64));
  launch(add_one, 64, b, x.span(), out.span().last(64));
  EXPECT_EQ(take_fault(), "");
  launch(add_one, 64, b, x.span(), out.span().subspan(32, 64));
  EXPECT_THAT(take_fault(), HasSubstr("race"));
}

TEST(FakeSchedule, LazyWorkStartsWhenSomethingWaitsForIt) {
  set_schedule(Schedule::Lazy, 1);
  Memory<float> x(1);
  TestStream stream;
  cudaMemsetAsync(x.span().data(), 0, sizeof(float), stream);
  EXPECT_TRUE(std::isnan(x.span()[0]));
  stream.finish();
  EXPECT_EQ(x.span()[0], 0);
}

/// A graph of two streams, of which the second reads what the first has written, run twice.
std::string run_graph(Event kind) {
  Memory<float> first(64);
  Memory<float> second(64);
  std::ranges::fill(first.span(), 0.0F);
  TestStream origin;
  TestStream other;
  cudaEvent_t edges[3];
  for (cudaEvent_t& edge : edges)
    cudaEventCreateWithFlags(&edge, cudaEventDisableTiming);
  const auto order = [&](cudaStream_t before, cudaEvent_t edge, cudaStream_t after) {
    cudaEventRecord(edge, before);
    cudaStreamWaitEvent(after, edge, 0);
  };
  cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed);
  order(origin, edges[0], other);
  launch(add_one, 64, origin, first.span(), second.span());
  if (kind == Event::Recorded) order(origin, edges[1], other);
  launch(add_one, 64, other, second.span(), first.span());
  order(other, edges[2], origin);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(origin, &graph);
  EXPECT_EQ(first.span()[63], 0) << "a capture runs nothing";
  cudaGraphExec_t exec = nullptr;
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphLaunch(exec, origin);
  cudaGraphLaunch(exec, origin);
  origin.finish();
  if (kind == Event::Recorded) {
    EXPECT_EQ(first.span()[63], 4);
  }
  for (cudaEvent_t edge : edges)
    cudaEventDestroy(edge);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return take_fault();
}

TEST_P(Fake, RunsGraphsAndFindsTheEdgesThatTheyLack) {
  EXPECT_EQ(run_graph(Event::Recorded), "");
  EXPECT_THAT(run_graph(Event::Forgotten), HasSubstr("race: nothing orders"));
}

TEST_P(Fake, FindsStreamsThatAGraphDoesNotJoin) {
  Memory<float> x(64);
  TestStream origin;
  TestStream other;
  cudaEvent_t fork = nullptr;
  cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
  cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed);
  cudaEventRecord(fork, origin);
  cudaStreamWaitEvent(other, fork, 0);
  cudaMemsetAsync(x.span().data(), 0, 64, other);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(origin, &graph);
  EXPECT_THAT(take_fault(), HasSubstr("before all of its streams are joined"));
  cudaEventQuery(fork);
  EXPECT_THAT(take_fault(), HasSubstr("an event of a capture is asked for"));
  cudaGraphDestroy(graph);
  cudaEventDestroy(fork);
}

template <bool kHasBarrier>
__global__ void reverse(std::span<const float> x, std::span<float> out) {
  __shared__ float all[256];
  all[threadIdx.x] = x[threadIdx.x];
  if (kHasBarrier) __syncthreads();
  out[threadIdx.x] = all[255 - threadIdx.x];
}

/// How many elements are wrong in reverse, of numbers that no call before this one had: shared
/// memory keeps those of the last block.
int wrong_in_reverse(void (*kernel)(std::span<const float>, std::span<float>)) {
  Memory<float> x(256);
  Memory<float> out(256);
  static float number = 0;
  for (float& value : x.span())
    value = ++number;
  TestStream stream;
  launch(kernel, 256, stream, x.span(), out.span());
  stream.finish();
  int wrong = 0;
  for (std::size_t i = 0; i < 256; ++i)
    wrong += out.span()[i] == x.span()[255 - i] ? 0 : 1;
  return wrong;
}

TEST_P(Fake, AMissingBarrierGivesWrongNumbers) {
  EXPECT_EQ(wrong_in_reverse(reverse<true>), 0);
  EXPECT_GT(wrong_in_reverse(reverse<false>), 0);
}

__global__ void sum_of_warp(std::span<float> out) {
  float sum = static_cast<float>(threadIdx.x);
  for (int offset = 16; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  const unsigned odd = __ballot_sync(0xffffffffU, threadIdx.x % 2 == 1);
  out[threadIdx.x] = odd == 0xaaaaaaaaU ? sum : -1;
}
TEST_P(Fake, LanesExchangeValues) {
  Memory<float> out(32);
  TestStream stream;
  launch(sum_of_warp, 32, stream, out.span());
  stream.finish();
  EXPECT_THAT(out.span(), ::testing::Each(496));
}

__global__ void diverge(std::span<float>) {
  if (threadIdx.x == 40)
    __syncthreads();
  else
    __syncwarp();
}
TEST_P(Fake, FindsThreadsThatWaitInVain) {
  Memory<float> out(1);
  TestStream stream;
  launch(diverge, 64, stream, out.span());
  stream.finish();
  EXPECT_THAT(take_fault(), HasSubstr("barrier"));
}

TEST_P(Fake, FreshMemoryIsPoisonAndMemoryIsLimited) {
  void* fresh = nullptr;
  ASSERT_EQ(cudaMalloc(&fresh, 4000), cudaSuccess);
  EXPECT_TRUE(std::all_of(static_cast<float*>(fresh), static_cast<float*>(fresh) + 1000,
                          [](float y) { return std::isnan(y); }));
  void* much = nullptr;
  EXPECT_EQ(cudaMalloc(&much, 1 << 20), cudaErrorMemoryAllocation);
  std::size_t free = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free, &total);
  EXPECT_EQ(total - free, 4000);
  cudaFree(fresh);
}

TEST_P(Fake, FindsAddressesThatTheDeviceDoesNotHave) {
  Memory<float> x(64);
  Memory<float> out(64);
  TestStream stream;
  launch(add_one, 64, stream, x.span(), std::span(out.span().data() + 1, 64));
  EXPECT_THAT(take_fault(), HasSubstr("nobody allocated"));
  cudaSetDevice(1);
  cudaStream_t other = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  launch(add_one, 64, other, x.span(), out.span());
  EXPECT_THAT(take_fault(), HasSubstr("memory of device 0"));
  launch(add_one, 64, stream, x.span(), out.span());
  EXPECT_THAT(take_fault(), HasSubstr("stream of another device"));
  cudaStreamDestroy(other);
  cudaSetDevice(0);
}

/// Two ranks, which each do what `body` says; the fault that was found.
template <typename Body>
std::string fault_of_two_ranks(Body body) {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids)
    ncclGetUniqueId(&id);
  const auto rank_body = [&](int rank) {
    cudaSetDevice(rank);
    cudaStream_t streams[2];
    ncclComm_t comms[2];
    cudaEvent_t ends[2];
    void* memory = nullptr;
    cudaMalloc(&memory, 1024);
    for (int i = 0; i < 2; ++i) {
      cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
      cudaEventCreateWithFlags(&ends[i], cudaEventDisableTiming);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      ncclCommInitRankConfig(&comms[i], 2, ids[i], rank, &config);
    }
    body(rank, static_cast<float*>(memory), streams, comms);
    for (int i = 0; i < 2; ++i) {
      cudaError_t status = cudaEventRecord(ends[i], streams[i]);
      while (status == cudaSuccess || status == cudaErrorNotReady)
        if ((status = cudaEventQuery(ends[i])) == cudaSuccess) break;
    }
  };
  std::thread first(rank_body, 0);
  std::thread second(rank_body, 1);
  first.join();
  second.join();
  return take_fault();
}

TEST_P(Fake, FindsCollectivesThatDoNotMatch) {
  const auto reduce = [](int rank, float* memory, cudaStream_t* streams, ncclComm_t* comms) {
    ncclAllReduce(memory, memory, rank == 0 ? 8 : 9, ncclFloat32, ncclSum, comms[0], streams[0]);
  };
  EXPECT_THAT(fault_of_two_ranks(reduce), HasSubstr("collectives do not match"));
}

/// Both ranks do the same collectives on one stream, but one of them in another order.
void reduce_twice(int first, float* memory, cudaStream_t* streams, ncclComm_t* comms) {
  for (const int i : {first, 1 - first})
    ncclAllReduce(memory, memory, 8, ncclFloat32, ncclSum, comms[i], streams[0]);
}

TEST_P(Fake, FindsRanksThatWaitForOneAnother) {
  EXPECT_EQ(fault_of_two_ranks([](int, float* memory, cudaStream_t* streams, ncclComm_t* comms) {
              reduce_twice(0, memory, streams, comms);
            }),
            "");
  EXPECT_THAT(
      fault_of_two_ranks([](int rank, float* memory, cudaStream_t* streams, ncclComm_t* comms) {
        reduce_twice(rank, memory, streams, comms);
      }),
      HasSubstr("deadlock"));
}

}  // namespace
}  // namespace fake_cuda
