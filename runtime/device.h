#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "plans/plan.h"

namespace shardplan {

/// Where an operand lies.
struct Operand {
  std::byte* data = nullptr;
  std::int64_t elems = 0;
  Dtype dtype = Dtype::Float32;

  std::span<std::byte> bytes() const {
    return {data, static_cast<std::size_t>(elems * size_of(dtype))};
  }
};

/// Values that change from step to step; the columns of Plan::scalars.
struct StepScalars {
  double learning_rate = 0;
  double bias_correction1 = 1;  // 1 - beta1^t, t from 1
  double bias_correction2 = 1;
};

/// One launch of a kernel.
struct Launch {
  Kernel kernel;
  const Attributes& attributes;
  std::span<const Operand> reads;
  std::span<const Operand> writes;
  const StepScalars& scalars;
};

/// One issue of an instruction to its stream.
struct Issue {
  InstructionId id = -1;
  std::int32_t step = 0;        // from 0
  std::int32_t micro_step = 0;  // of a read: earlier ones of its source in this step
  bool first = false;           // the first issue of this instruction in the run
  /// By stream: how many of its issues must have finished before this one starts.
  std::array<std::uint64_t, kStreams> waits{};
};

/// What executes one rank's instructions: streams with events, and the operators that they run.
class Device {
 public:
  virtual ~Device() = default;

  /// Puts an issue at the end of a stream and returns its number there, from 1 on. Blocks while the
  /// stream is full; 0: the device was stopped.
  virtual std::uint64_t enqueue(Stream stream, const Issue& issue) = 0;
  /// Blocks until the stream has finished its first `count` issues; false: stopped before that.
  virtual bool wait(Stream stream, std::uint64_t count) = 0;
  /// Lets no further issue start, and wakes all who wait.
  virtual void stop() noexcept = 0;
  /// Stops, and blocks until nothing runs any more.
  virtual void join() noexcept = 0;

  virtual void compute(const Launch& launch) = 0;
  /// As many elements, converted where the dtypes differ.
  virtual void copy(const Operand& from, const Operand& to) = 0;
  virtual void fill(const Operand& to, double value) = 0;
};

}  // namespace shardplan
