#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/gemm.h"
#include "runtime/cpu_stream.h"
#include "runtime/device.h"
#include "runtime/device_kind.h"

namespace shardplan {

/// A worker thread per stream, and our CPU kernels.
class CpuDevice final : public Device {
 public:
  CpuDevice(const DeviceOptions& options, Body body);

  std::span<std::byte> allocate(Space space, Bytes bytes) override;

  std::uint64_t enqueue(Stream stream, const Issue& issue) override;
  bool wait(Stream stream, std::uint64_t count) override;
  void begin_step(const StepScalars&) override {}
  void stop() noexcept override;
  void join() noexcept override;

  void compute(Stream stream, const Launch& launch) override;
  void copy(Stream stream, const Operand& from, const Operand& to) override;
  void fill(Stream stream, const Operand& to, double value) override;
  void copy_in(Stream stream, const Issue& issue, HostData& host, const Operand& to) override;
  void copy_out(Stream stream, const Issue& issue, HostData& host, const Operand& from) override;
  void fill_pattern(Stream stream, std::span<std::byte> memory) override;
  void count_changed(Stream stream, std::span<const std::byte> memory, Bytes& changed) override;

  std::optional<Bytes> bytes_in_use() const override { return std::nullopt; }
  void finish(Stream) override {}
  std::span<const std::byte> on_host(const Operand& from) override { return from.bytes(); }
  void from_host(std::span<const std::byte> from, const Operand& to) override;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  bool run(const Issue& issue);

  const cpu::Gemm gemm_;
  const Body body_;
  std::vector<std::unique_ptr<std::byte[], Free>> memory_;
  std::array<std::unique_ptr<CpuStream>, kStreams> streams_;
};

}  // namespace shardplan
