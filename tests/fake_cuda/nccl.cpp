#include <nccl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "kernels/bfloat16.h"
#include "tests/fake_cuda/machine.h"

namespace fake_cuda {

/// A call of one rank; all ranks of a group make the same ones, in the same order.
struct Call {
  const std::byte* send;
  std::byte* receive;
  std::size_t count;
  ncclDataType_t type;
  double factor;  // of what every rank brings
};

struct Round {
  std::shared_ptr<Collective> collective;
  std::string what;
  std::vector<Call> calls;  // by rank
};

struct Group {
  int ranks = 0;
  int joined = 0;
  bool aborted = false;
  std::map<std::uint64_t, Round> rounds;  // by sequence number; those not yet done
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  std::uint64_t sequence = 0;
  std::vector<double> factors;  // of the operations that were made
  std::span<const std::byte> registered = {};
  std::vector<std::weak_ptr<const fake_cuda::Graph>> graphs = {};  // that hold work of it
};

namespace {

std::map<std::string, std::shared_ptr<Group>>& groups() {
  static std::map<std::string, std::shared_ptr<Group>> by_id;
  return by_id;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return 1;
    case ncclBfloat16: return 2;
    case ncclFloat32: return 4;
    case ncclFloat64: return 8;
  }
  return 0;
}

template <typename T>
T product(T x, double factor) {
  return static_cast<T>(x * static_cast<T>(factor));
}
template <typename T>
T sum_of(T a, T b) {
  return a + b;
}
using shardplan::BFloat16;
BFloat16 product(BFloat16 x, double factor) {
  return shardplan::rounded(shardplan::widened(x) * static_cast<float>(factor));
}
// NCCL rounds every partial sum to the type that it sends.
BFloat16 sum_of(BFloat16 a, BFloat16 b) {
  return shardplan::rounded(shardplan::widened(a) + shardplan::widened(b));
}

/// Elements [first, first + count) of the sum over the ranks, in their order.
template <typename T>
std::vector<T> sum(const std::vector<Call>& calls, std::size_t first, std::size_t count) {
  std::vector<T> total(count);
  for (std::size_t rank = 0; rank < calls.size(); ++rank)
    for (std::size_t i = 0; i < count; ++i) {
      const T x =
          product(reinterpret_cast<const T*>(calls[rank].send)[first + i], calls[rank].factor);
      total[i] = rank == 0 ? x : sum_of(total[i], x);
    }
  return total;
}

template <typename T>
void reduce(const std::vector<Call>& calls, bool scatter) {
  const std::size_t count = calls.front().count;
  const std::vector<T> total = sum<T>(calls, 0, scatter ? count * calls.size() : count);
  for (std::size_t rank = 0; rank < calls.size(); ++rank)
    std::memcpy(calls[rank].receive, total.data() + (scatter ? rank * count : 0),
                count * sizeof(T));
}

void reduce(const std::vector<Call>& calls, bool scatter) {
  switch (calls.front().type) {
    case ncclFloat32: return reduce<float>(calls, scatter);
    case ncclFloat64: return reduce<double>(calls, scatter);
    case ncclBfloat16: return reduce<BFloat16>(calls, scatter);
    case ncclInt8: break;
  }
  fault("a sum over bytes");
}

using Work = std::function<void(const std::vector<Call>&)>;

Collectives counted;

bool lies_in(std::span<const std::byte> part, std::span<const std::byte> memory) {
  return part.data() >= memory.data() && part.data() + part.size() <= memory.data() + memory.size();
}

/// With the lock: a rank's part of the next round.
cudaError_t join_round(Comm& comm, Stream& stream, const std::string& what, const Call& own,
                       const std::vector<Access>& accesses, Work work) {
  Group& group = *comm.group;
  if (group.aborted) return cudaSuccess;
  if (stream.capture) {
    comm.graphs.push_back(stream.capture);
    return note(stream, what, accesses, [&comm, what, own, accesses, work](Stream& on) {
      return join_round(comm, on, what, own, accesses, work);
    });
  }
  ++counted.all;
  if (std::ranges::all_of(accesses,
                          [&](const Access& one) { return lies_in(one.bytes, comm.registered); }))
    ++counted.registered;
  const std::uint64_t number = comm.sequence++;
  Round& round = group.rounds[number];
  const std::string described =
      what + " of " + std::to_string(own.count) + " of type " + std::to_string(own.type);
  if (!round.collective) {
    round.what = described;
    round.calls.resize(static_cast<std::size_t>(group.ranks));
    round.collective = std::make_shared<Collective>(Collective{.ranks = group.ranks});
    round.collective->work = [kept = comm.group, number, work = std::move(work)] {
      work(kept->rounds.at(number).calls);
      kept->rounds.erase(number);
    };
  } else if (round.what != described) {
    fault("collectives do not match: " + round.what + " and " + described + " of rank " +
          std::to_string(comm.rank));
  }
  round.calls[static_cast<std::size_t>(comm.rank)] = own;
  Operation operation{.kind = Operation::Kind::Collective, .what = described};
  operation.collective = round.collective;
  return put(stream, std::move(operation), accesses);
}

ncclResult_t call(Comm& comm, cudaStream_t stream, const std::string& what, const Call& own,
                  const std::vector<Access>& accesses, Work work) {
  const std::lock_guard guard(lock());
  if (comm.group->aborted) return ncclRemoteError;
  return join_round(comm, *stream, what, own, accesses, std::move(work)) == cudaSuccess
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

/// NCCL waits for graphs that have work of a communicator before that ends.
void expect_no_graphs(const Comm& comm) {
  for (const auto& graph : comm.graphs)
    if (!graph.expired()) return fault("a communicator waits for a graph that has work of it");
}

std::vector<Access> accesses_of(const Call& call, std::size_t sent, std::size_t received) {
  const std::size_t size = size_of(call.type);
  return {{{call.send, sent * size}, false}, {{call.receive, received * size}, true}};
}

Call call_of(const void* send, void* receive, std::size_t count, ncclDataType_t type,
             double factor = 1) {
  return {static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count, type,
          factor};
}

double factor_of(const Comm& comm, ncclRedOp_t op) {
  return op == ncclSum ? 1 : comm.factors.at(static_cast<std::size_t>(op) - 1);
}

}  // namespace

Collectives take_collectives() {
  const std::lock_guard guard(lock());
  return std::exchange(counted, {});
}

}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return cudaGetErrorString(cudaErrorAssert); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  const std::lock_guard guard(lock());
  const std::string text = "fake " + std::to_string(++count);
  std::memset(id->internal, 0, sizeof(id->internal));
  text.copy(id->internal, sizeof(id->internal) - 1);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  const std::lock_guard guard(lock());
  auto& group = groups()[id.internal];
  if (!group) group = std::make_shared<Group>();
  group->ranks = ranks;
  *comm = new Comm{.group = group, .rank = rank};
  if (++group->joined == ranks) groups().erase(id.internal);
  return ncclInProgress;
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, std::size_t bytes, void** handle) {
  const std::lock_guard guard(lock());
  comm->registered = {static_cast<const std::byte*>(memory), bytes};
  *handle = memory;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const std::lock_guard guard(lock());
  if (handle != comm->registered.data()) return ncclInvalidArgument;
  comm->registered = {};
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const std::lock_guard guard(lock());
  const Group& group = *comm->group;
  *result = group.aborted                ? ncclRemoteError
            : group.joined < group.ranks ? ncclInProgress
                                         : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard guard(lock());
  expect_no_graphs(*comm);
  if (!comm->registered.empty()) fault("a communicator goes before memory registered with it");
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard guard(lock());
  expect_no_graphs(*comm);
  comm->group->aborted = true;
  for (auto& [number, round] : comm->group->rounds)
    round.collective->aborted = true;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  if (residence != ncclScalarHostImmediate) return ncclInvalidArgument;
  double factor = 0;
  if (type == ncclFloat64) factor = *static_cast<double*>(scalar);
  if (type == ncclFloat32) factor = *static_cast<float*>(scalar);
  if (type == ncclBfloat16) factor = shardplan::widened(*static_cast<BFloat16*>(scalar));
  comm->factors.push_back(factor);
  *op = static_cast<ncclRedOp_t>(comm->factors.size());
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call own = call_of(send, receive, count, type);
  return call(*comm, stream, "all-gather", own,
              accesses_of(own, count, count * static_cast<std::size_t>(comm->group->ranks)),
              [](const std::vector<Call>& calls) {
                const std::size_t bytes = calls.front().count * size_of(calls.front().type);
                for (const Call& to : calls)
                  for (std::size_t from = 0; from < calls.size(); ++from)
                    std::memmove(to.receive + from * bytes, calls[from].send, bytes);
              });
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  const Call own = call_of(send, receive, receive_count, type, factor_of(*comm, op));
  const std::size_t sent = receive_count * static_cast<std::size_t>(comm->group->ranks);
  return call(*comm, stream, "reduce-scatter", own, accesses_of(own, sent, receive_count),
              [](const std::vector<Call>& calls) { reduce(calls, true); });
}
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const Call own = call_of(send, receive, count, type, factor_of(*comm, op));
  return call(*comm, stream, "all-reduce", own, accesses_of(own, count, count),
              [](const std::vector<Call>& calls) { reduce(calls, false); });
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const Call own = call_of(send, receive, count, type);
  return call(*comm, stream, "broadcast from " + std::to_string(root), own,
              accesses_of(own, count, count), [root](const std::vector<Call>& calls) {
                const Call& from = calls[static_cast<std::size_t>(root)];
                for (const Call& to : calls)
                  std::memmove(to.receive, from.send, from.count * size_of(from.type));
              });
}
}
