#include "runtime/cpu_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/kernels.h"
#include "plans/error.h"
#include "runtime/cpu_kernels.h"
#include "runtime/memory_pattern.h"

namespace shardplan {
namespace {

template <typename T>
void fill_with(const Operand& to, double value) {
  std::fill_n(reinterpret_cast<T*>(to.data), to.elems, static_cast<T>(value));
}

cpu::Gemm gemm_of(Profile profile) {
  return profile == Profile::CpuReference ? cpu::gemm_reference : cpu::gemm_onednn;
}

constexpr Bytes kAlignment = 2 << 20;  // of large pages

}  // namespace

CpuDevice::CpuDevice(const DeviceOptions& options, Body body)
    : gemm_(gemm_of(options.profile)), body_(std::move(body)) {
  for (int s = 0; s < kStreams; ++s) {
    if (!options.streams[s]) continue;
    const bool computes = static_cast<Stream>(s) == Stream::Compute;
    streams_[s] = std::make_unique<CpuStream>([this](const Issue& issue) { return run(issue); },
                                              computes ? options.compute_threads : 1);
  }
}

std::span<std::byte> CpuDevice::allocate(Space, Bytes bytes) {
  const Bytes size = round_up(bytes, kAlignment);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  if (!memory) throw SystemError(fmt::format("cannot allocate {}", format_bytes(bytes)));
  memory_.emplace_back(memory);
  // Large pages: matrix products step over thousands of small ones. A wish; any pages will do.
  madvise(memory, static_cast<std::size_t>(size), MADV_HUGEPAGE);
  return {memory, static_cast<std::size_t>(bytes)};
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

void CpuDevice::compute(Stream, const Launch& launch) { cpu::launch(gemm_, launch); }

void CpuDevice::copy(Stream, const Operand& from, const Operand& to) {
  check(from.elems == to.elems, "a copy keeps the number of elements");
  if (from.elems == 0) return;
  if (from.dtype == to.dtype) {
    std::memmove(to.data, from.data, to.bytes().size());
  } else if (from.dtype == Dtype::Float32 && to.dtype == Dtype::BFloat16) {
    cpu::narrow(reinterpret_cast<const float*>(from.data), reinterpret_cast<BFloat16*>(to.data),
                to.elems);
  } else {
    check(from.dtype == Dtype::BFloat16 && to.dtype == Dtype::Float32,
          "copies convert between float32 and bfloat16");
    cpu::widen(reinterpret_cast<const BFloat16*>(from.data), reinterpret_cast<float*>(to.data),
               to.elems);
  }
}

void CpuDevice::fill(Stream, const Operand& to, double value) {
  switch (to.dtype) {
    case Dtype::Float64: return fill_with<double>(to, value);
    case Dtype::Float32: return fill_with<float>(to, value);
    case Dtype::Int64: return fill_with<std::int64_t>(to, value);
    case Dtype::Int32: return fill_with<std::int32_t>(to, value);
    case Dtype::UInt32: return fill_with<std::uint32_t>(to, value);
    case Dtype::UInt16: return fill_with<std::uint16_t>(to, value);
    case Dtype::UInt8: return fill_with<std::uint8_t>(to, value);
    case Dtype::BFloat16:
      std::fill_n(reinterpret_cast<BFloat16*>(to.data), to.elems,
                  rounded(static_cast<float>(value)));
      return;
    case Dtype::Float16: break;
  }
  check(false, "a fill is of a dtype that the CPU has");
}

void CpuDevice::copy_in(Stream, const Issue& issue, HostData& host, const Operand& to) {
  host.provide(issue, 0, to.bytes());
}

void CpuDevice::copy_out(Stream, const Issue& issue, HostData& host, const Operand& from) {
  host.accept(issue, 0, from.bytes());
}

void CpuDevice::fill_pattern(Stream, std::span<std::byte> memory) {
  shardplan::fill_pattern(memory);
}

void CpuDevice::count_changed(Stream, std::span<const std::byte> memory, Bytes& changed) {
  changed = shardplan::count_changed(memory);
}

void CpuDevice::from_host(std::span<const std::byte> from, const Operand& to) {
  std::ranges::copy(from, to.data);
}

const DeviceKind& cpu_devices() {
  static constexpr DeviceKind kind{
      .name = "CPU",
      .runs = [](Profile profile) { return is_cpu(profile); },
      .missing_kernel = cpu::missing_kernel,
      .count = [] { return -1; },
      .make = [](const DeviceOptions& options, Device::Body body) -> std::unique_ptr<Device> {
        return std::make_unique<CpuDevice>(options, std::move(body));
      },
      .connect = nullptr,
      .works_in_bodies = true};
  return kind;
}

}  // namespace shardplan
