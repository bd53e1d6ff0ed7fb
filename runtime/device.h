#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
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

/// What a rank's instructions read from the host and write there. Called in the order of their
/// stream, on any thread, for one part of the operand after the other.
class HostData {
 public:
  virtual ~HostData() = default;

  /// `part`: host memory for the bytes of the written operand from byte `at` on.
  virtual void provide(const Issue& issue, Bytes at, std::span<std::byte> part) = 0;
  /// `part`: a copy of the bytes of the read operand from byte `at` on, or those themselves.
  virtual void accept(const Issue& issue, Bytes at, std::span<const std::byte> part) = 0;
};

/// What some devices can: note issues once and run them many times, as one piece of work.
class Replay {
 public:
  virtual ~Replay() = default;

  /// Lets the issues that follow, of one step, be noted and not run. Host waits become waits of all
  /// streams, and the numbers of issues are good until end() only.
  virtual void begin() = 0;
  virtual void end() = 0;
  /// Runs them, of the noted step at first and of one step more each time, after everything that
  /// was issued before. Returns the number on each stream of an issue that ends with them; 0 where
  /// the device does not have the stream, and everywhere once it was stopped.
  virtual std::array<std::uint64_t, kStreams> run() = 0;
};

/// What executes one rank's instructions: memory, streams with events, and the operators that they
/// run. A CPU runs the work of an issue while its body runs; a GPU only enqueues it there, in the
/// order of the issue's stream.
class Device {
 public:
  /// Does the work of an issue; false: it failed.
  using Body = std::function<bool(const Issue&)>;

  virtual ~Device() = default;

  /// Memory that lives as long as the device; Space::Device or Space::Pinned, which the host reads
  /// and writes too. Throws SystemError when there is not enough.
  virtual std::span<std::byte> allocate(Space space, Bytes bytes) = 0;

  /// Puts an issue at the end of a stream and returns its number there, from 1 on. Blocks while the
  /// stream is full; 0: the device was stopped.
  virtual std::uint64_t enqueue(Stream stream, const Issue& issue) = 0;
  /// Blocks until the stream has finished its first `count` issues; false: stopped before that.
  virtual bool wait(Stream stream, std::uint64_t count) = 0;
  /// What issues that follow may depend on besides their operands. Where launches bring that
  /// themselves it is ignored.
  virtual void begin_step(const StepScalars& scalars) = 0;
  /// Null: it cannot.
  virtual Replay* replay() { return nullptr; }
  /// Lets no further issue start, and wakes all who wait.
  virtual void stop() noexcept = 0;
  /// Stops, and blocks until nothing runs any more.
  virtual void join() noexcept = 0;

  // To be called by bodies, with the stream of their issue.
  virtual void compute(Stream stream, const Launch& launch) = 0;
  /// As many elements, converted where the dtypes differ.
  virtual void copy(Stream stream, const Operand& from, const Operand& to) = 0;
  virtual void fill(Stream stream, const Operand& to, double value) = 0;
  virtual void copy_in(Stream stream, const Issue& issue, HostData& host, const Operand& to) = 0;
  virtual void copy_out(Stream stream, const Issue& issue, HostData& host, const Operand& from) = 0;
  /// See memory_pattern.h.
  virtual void fill_pattern(Stream stream, std::span<std::byte> memory) = 0;
  /// `changed`, in pinned memory, gets the number of bytes in words that differ from the pattern.
  virtual void count_changed(Stream stream, std::span<const std::byte> memory, Bytes& changed) = 0;

  /// Bytes of the device's memory that are not free, whoever has them; none: it has no memory of
  /// its own.
  virtual std::optional<Bytes> bytes_in_use() const = 0;

  // To be called while no issue runs; they block until it is done.
  /// Ends what was called without an issue.
  virtual void finish(Stream stream) = 0;
  /// Host memory with the operand's bytes, valid until the next call for the same operand.
  virtual std::span<const std::byte> on_host(const Operand& from) = 0;
  virtual void from_host(std::span<const std::byte> from, const Operand& to) = 0;
};

}  // namespace shardplan
