#pragma once

#include <array>
#include <functional>
#include <memory>

#include "kernels/gemm.h"
#include "runtime/cpu_stream.h"
#include "runtime/device.h"

namespace shardplan {

/// A worker thread per stream, and our CPU kernels.
class CpuDevice final : public Device {
 public:
  struct Options {
    std::array<bool, kStreams> streams{};  // those that the plan uses
    cpu::Gemm gemm = nullptr;
    int compute_threads = 1;
  };
  /// `body` runs an issue once its waits are over; false: it failed.
  CpuDevice(const Options& options, CpuStream::Body body);

  std::uint64_t enqueue(Stream stream, const Issue& issue) override;
  bool wait(Stream stream, std::uint64_t count) override;
  void stop() noexcept override;
  void join() noexcept override;

  void compute(const Launch& launch) override;
  void copy(const Operand& from, const Operand& to) override;
  void fill(const Operand& to, double value) override;

 private:
  bool run(const Issue& issue);

  const cpu::Gemm gemm_;
  const CpuStream::Body body_;
  std::array<std::unique_ptr<CpuStream>, kStreams> streams_;
};

}  // namespace shardplan
