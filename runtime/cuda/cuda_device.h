#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/cuda/linear.h"
#include "runtime/cuda/memory.h"
#include "runtime/device.h"
#include "runtime/device_kind.h"

namespace shardplan::cuda {

/// How many GPUs this machine has. Throws SystemError when CUDA does not start.
int device_count();

/// One GPU. Issues are enqueued by the thread that issues them, on a CUDA stream for each of the
/// plan's; what they wait for becomes events.
class CudaDevice final : public Device {
 public:
  CudaDevice(const DeviceOptions& options, Body body);
  ~CudaDevice() override;

  std::span<std::byte> allocate(Space space, Bytes bytes) override;

  std::uint64_t enqueue(Stream stream, const Issue& issue) override;
  bool wait(Stream stream, std::uint64_t count) override;
  void begin_step(const StepScalars& scalars) override;
  Replay* replay() override;
  void stop() noexcept override { stopped_ = true; }
  void join() noexcept override;

  void compute(Stream stream, const Launch& launch) override;
  void copy(Stream stream, const Operand& from, const Operand& to) override;
  void fill(Stream stream, const Operand& to, double value) override;
  void copy_in(Stream stream, const Issue& issue, HostData& host, const Operand& to) override;
  void copy_out(Stream stream, const Issue& issue, HostData& host, const Operand& from) override;
  void fill_pattern(Stream stream, std::span<std::byte> memory) override;
  void count_changed(Stream stream, std::span<const std::byte> memory, Bytes& changed) override;

  std::optional<Bytes> bytes_in_use() const override;
  void finish(Stream stream) override;
  std::span<const std::byte> on_host(const Operand& from) override;
  void from_host(std::span<const std::byte> from, const Operand& to) override;

  // For communicators on this device.
  cudaStream_t stream(Stream stream) { return queue(stream).stream.get(); }
  /// Calls `check` while somebody waits, now and then; what it throws ends the wait.
  /// To be called by the thread that issues: it alone makes checks.
  void watch(std::function<void()> check) {
    owner_ = std::this_thread::get_id();
    checks_.push_back(std::move(check));
  }
  bool is_stopped() const { return stopped_; }
  /// The first memory that was asked for: the arena. Empty: none was yet.
  std::span<std::byte> arena() const { return arena_; }
  /// To be called before the device's communicators go.
  void drop_graph() noexcept;

 private:
  /// Issues that the host may be ahead.
  static constexpr std::uint64_t kCapacity = 256;
  static constexpr std::size_t kStagings = 4;
  static constexpr InstructionId kGraphId = -1;  // of an issue that ends with a step's graph

  /// Pinned memory that parts of operands pass through.
  struct Staging {
    CudaDevice* device = nullptr;
    PinnedMemory memory;
    EventHandle done;  // what was last copied through it
    bool used = false;
    HostData* host = nullptr;
    Issue issue;
    Bytes at = 0;
    std::size_t bytes = 0;
  };
  struct Queue {
    StreamHandle stream;
    std::array<EventHandle, kCapacity> events;  // by issue number
    std::array<InstructionId, kCapacity> ids{};
    std::atomic<std::uint64_t> issued{0};
    std::atomic<std::uint64_t> finished{0};  // at least so many; for progress()
    EventHandle idle;                        // for finish()
    std::array<Staging, kStagings> stagings;
    std::size_t next_staging = 0;
    std::span<double> partials;
    std::span<StepFactors> now;
    std::unique_ptr<Products> products;
  };
  class Patience;
  class StepGraph;

  std::span<std::byte> new_memory(std::size_t bytes);
  Queue& queue(Stream stream);
  /// Calls visit(stream) for all but the compute stream.
  template <typename Visit>
  void for_other_streams(Visit visit) {
    for (int s = 0; s < kStreams; ++s)
      if (queues_[s] && static_cast<Stream>(s) != Stream::Compute) visit(static_cast<Stream>(s));
  }
  bool may_issue(Stream stream);
  const EventHandle* event_of(Stream stream, std::uint64_t number);
  std::uint64_t mark(Stream stream, InstructionId id);
  bool is_finished(const Queue& queue, std::uint64_t count) const;
  std::uint64_t progress();
  std::string oldest_issues();
  std::string name_of(InstructionId id) const;
  void wait_for(const EventHandle& event);
  void expect_no_failure();
  void defer(std::exception_ptr error) noexcept;
  Staging& staging(Queue& queue, std::size_t bytes);
  Staging& staging(Queue& queue, std::size_t bytes, const Issue& issue, HostData& host,
                   std::size_t at);
  void release(const Queue& queue, const Staging& slot);
  template <typename Call>
  static void call_host(void* staging, Call call) noexcept;
  static void provide(void* staging) noexcept;
  static void accept(void* staging) noexcept;

  const DeviceOptions options_;
  const Body body_;
  std::vector<DeviceMemory> memory_;
  std::span<std::byte> arena_;
  std::vector<PinnedMemory> pinned_;
  std::array<std::unique_ptr<Queue>, kStreams> queues_;
  std::map<const std::byte*, std::vector<std::byte>> copies_;  // on the host, by operand
  std::vector<std::function<void()>> checks_;
  std::atomic<std::thread::id> owner_{};  // who makes the checks
  std::atomic<bool> stopped_{false};
  std::atomic<bool> ended_{false};  // nothing runs any more
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;  // of a part that the host has taken or given
  std::unique_ptr<StepGraph> graph_;
};

}  // namespace shardplan::cuda
