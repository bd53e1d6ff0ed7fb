#include "runtime/cuda/nccl_communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "kernels/bfloat16.h"
#include "plans/error.h"

namespace shardplan::cuda {
namespace {

[[noreturn]] void fail(ncclResult_t result, ncclComm_t comm, const char* what) {
  throw SystemError(fmt::format("NCCL cannot {}: {} ({})", what, ncclGetErrorString(result),
                                ncclGetLastError(comm)));
}

ncclDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float32: return ncclFloat32;
    case Dtype::Float64: return ncclFloat64;
    case Dtype::BFloat16: return ncclBfloat16;
    default: break;
  }
  shardplan::check(false, "sums are over float32, float64 or bfloat16");
  return ncclFloat32;
}

std::size_t elems_of(std::span<const std::byte> data, Dtype dtype) {
  return data.size() / static_cast<std::size_t>(size_of(dtype));
}

}  // namespace

NcclCommunicator::NcclCommunicator(Communicator& host, CudaDevice& device, Seconds timeout_s)
    : DeviceCommunicator(host, device), timeout_s_(timeout_s) {
  device.watch([this] { expect_peers(); });
}

NcclCommunicator::~NcclCommunicator() {
  for (auto& [key, comm] : comms_) {
    if (comm.arena != nullptr) ncclCommDeregister(comm.handle, comm.arena);
    ncclCommDestroy(comm.handle);
  }
}

/// Blocks until what NCCL does in the background is done.
void NcclCommunicator::settle(ncclResult_t result, ncclComm_t comm, const char* what) {
  const auto begin = std::chrono::steady_clock::now();
  while (result == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) result = ncclInvalidArgument;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (device().is_stopped()) throw SystemError("the device was stopped");
    if (taken.count() > timeout_s_)
      throw SystemError(
          fmt::format("NCCL: not all ranks came to {} within {} s", what, timeout_s_));
    std::this_thread::yield();
  }
  if (result != ncclSuccess) fail(result, comm, what);
}

/// Collectives work in place in registered memory, without NCCL's own buffers in between, where the
/// links allow it.
NcclCommunicator::Comm NcclCommunicator::connect(Group group) {
  ncclUniqueId id{};
  if (place(group) == 0 && ncclGetUniqueId(&id) != ncclSuccess)
    throw SystemError("NCCL cannot start");
  host().broadcast(Stream::Host, group, std::as_writable_bytes(std::span(&id, 1)), 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // or a rank that does not come would hold this one up for ever
  Comm made;
  const ncclResult_t result = ncclCommInitRankConfig(&made.handle, static_cast<int>(size(group)),
                                                     id, static_cast<int>(place(group)), &config);
  settle(result, made.handle, "connect ranks");
  if (const std::span<std::byte> arena = device().arena(); !arena.empty())
    settle(ncclCommRegister(made.handle, arena.data(), arena.size(), &made.arena), made.handle,
           "register memory");
  return made;
}

NcclCommunicator::Comm& NcclCommunicator::comm(Stream stream, Group group) {
  Comm& known = comms_[{stream, group}];
  if (known.handle == nullptr) known = connect(group);
  return known;
}

/// The sum of what ranks bring, times a factor.
ncclRedOp_t NcclCommunicator::operation(Comm& comm, ncclDataType_t type, double factor) {
  if (factor == 1) return ncclSum;
  const auto [found, is_new] = comm.sums.try_emplace({type, factor}, ncclSum);
  if (!is_new) return found->second;
  auto single = static_cast<float>(factor);
  BFloat16 half = rounded(single);
  void* scalar = type == ncclFloat64   ? static_cast<void*>(&factor)
                 : type == ncclFloat32 ? static_cast<void*>(&single)
                                       : static_cast<void*>(&half);
  const ncclResult_t result =
      ncclRedOpCreatePreMulSum(&found->second, scalar, type, ncclScalarHostImmediate, comm.handle);
  settle(result, comm.handle, "make a sum");
  return found->second;
}

void NcclCommunicator::gather(Stream stream, Group group, std::span<const std::byte> shard,
                              std::span<std::byte> full) {
  const ncclComm_t own = comm(stream, group).handle;
  settle(ncclAllGather(shard.data(), full.data(), shard.size(), ncclInt8, own,
                       device().stream(stream)),
         own, "gather");
}

void NcclCommunicator::sum_shards(Stream stream, Group group, Dtype dtype,
                                  std::span<const std::byte> full, std::span<std::byte> shard,
                                  double scale) {
  Comm& own = comm(stream, group);
  const ncclRedOp_t op = operation(own, type_of(dtype), scale);
  settle(ncclReduceScatter(full.data(), shard.data(), elems_of(shard, dtype), type_of(dtype), op,
                           own.handle, device().stream(stream)),
         own.handle, "reduce and scatter");
}

void NcclCommunicator::sum(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                           double scale) {
  Comm& own = comm(stream, group);
  const ncclRedOp_t op = operation(own, type_of(dtype), scale);
  settle(ncclAllReduce(data.data(), data.data(), elems_of(data, dtype), type_of(dtype), op,
                       own.handle, device().stream(stream)),
         own.handle, "reduce");
}

void NcclCommunicator::send_to_all(Stream stream, Group group, std::span<std::byte> data,
                                   int root) {
  const ncclComm_t own = comm(stream, group).handle;
  settle(ncclBroadcast(data.data(), data.data(), data.size(), ncclInt8, root, own,
                       device().stream(stream)),
         own, "broadcast");
}

/// Throws when NCCL has found a peer to have failed.
void NcclCommunicator::expect_peers() {
  for (const auto& [key, comm] : comms_) {
    if (comm.handle == nullptr) continue;
    ncclResult_t result = ncclSuccess;
    ncclCommGetAsyncError(comm.handle, &result);
    if (result == ncclSuccess || result == ncclInProgress) continue;
    fail(result, comm.handle,
         fmt::format("go on with stream {}, group {}", to_string(key.first), to_string(key.second))
             .c_str());
  }
}

void NcclCommunicator::abort(const char*) noexcept {
  device().drop_graph();
  for (auto& [key, comm] : comms_)
    if (comm.handle != nullptr) ncclCommAbort(comm.handle);
  comms_.clear();
}

}  // namespace shardplan::cuda
