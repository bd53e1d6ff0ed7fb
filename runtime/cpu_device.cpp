#include "runtime/cpu_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/kernels.h"
#include "plans/error.h"
#include "runtime/cpu_kernels.h"

namespace shardplan {
namespace {

template <typename T>
void fill_with(const Operand& to, double value) {
  std::fill_n(reinterpret_cast<T*>(to.data), to.elems, static_cast<T>(value));
}

}  // namespace

CpuDevice::CpuDevice(const Options& options, CpuStream::Body body)
    : gemm_(options.gemm), body_(std::move(body)) {
  for (int s = 0; s < kStreams; ++s) {
    if (!options.streams[s]) continue;
    const bool computes = static_cast<Stream>(s) == Stream::Compute;
    streams_[s] = std::make_unique<CpuStream>([this](const Issue& issue) { return run(issue); },
                                              computes ? options.compute_threads : 1);
  }
}

std::uint64_t CpuDevice::enqueue(Stream stream, const Issue& issue) {
  return streams_[static_cast<int>(stream)]->enqueue(issue);
}

bool CpuDevice::wait(Stream stream, std::uint64_t count) {
  return count == 0 || streams_[static_cast<int>(stream)]->wait(count);
}

void CpuDevice::stop() noexcept {
  for (const auto& stream : streams_)
    if (stream) stream->stop();
}

void CpuDevice::join() noexcept {
  for (const auto& stream : streams_)
    if (stream) stream->join();
}

bool CpuDevice::run(const Issue& issue) {
  for (int s = 0; s < kStreams; ++s)
    if (!wait(static_cast<Stream>(s), issue.waits[s])) return false;
  return body_(issue);
}

void CpuDevice::compute(const Launch& launch) { cpu::launch(gemm_, launch); }

void CpuDevice::copy(const Operand& from, const Operand& to) {
  check(from.elems == to.elems, "a copy keeps the number of elements");
  if (from.elems == 0) return;
  if (from.dtype == to.dtype) {
    std::memmove(to.data, from.data, to.bytes().size());
  } else if (from.dtype == Dtype::Float32 && to.dtype == Dtype::BFloat16) {
    cpu::narrow(reinterpret_cast<const float*>(from.data),
                reinterpret_cast<cpu::BFloat16*>(to.data), to.elems);
  } else {
    check(from.dtype == Dtype::BFloat16 && to.dtype == Dtype::Float32,
          "copies convert between float32 and bfloat16");
    cpu::widen(reinterpret_cast<const cpu::BFloat16*>(from.data), reinterpret_cast<float*>(to.data),
               to.elems);
  }
}

void CpuDevice::fill(const Operand& to, double value) {
  switch (to.dtype) {
    case Dtype::Float64: return fill_with<double>(to, value);
    case Dtype::Float32: return fill_with<float>(to, value);
    case Dtype::Int64: return fill_with<std::int64_t>(to, value);
    case Dtype::Int32: return fill_with<std::int32_t>(to, value);
    case Dtype::UInt32: return fill_with<std::uint32_t>(to, value);
    case Dtype::UInt16: return fill_with<std::uint16_t>(to, value);
    case Dtype::UInt8: return fill_with<std::uint8_t>(to, value);
    case Dtype::BFloat16:
      std::fill_n(reinterpret_cast<cpu::BFloat16*>(to.data), to.elems,
                  cpu::rounded(static_cast<float>(value)));
      return;
    case Dtype::Float16: break;
  }
  check(false, "a fill is of a dtype that the CPU has");
}

}  // namespace shardplan
