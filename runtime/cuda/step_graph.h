#pragma once

#include "runtime/cuda/cuda_device.h"

namespace shardplan::cuda {

/// A step's issues as a CUDA graph, which their streams are captured into. It begins and ends on
/// the compute stream; the others fork from there and are joined at the end.
class CudaDevice::StepGraph final : public Replay {
 public:
  explicit StepGraph(CudaDevice& device) : device_(device) {}
  ~StepGraph() override { drop(); }

  void begin() override;
  void end() override;
  std::array<std::uint64_t, kStreams> run() override;
  /// What NCCL has in a graph must go before its communicators do. A graph that runs ends by
  /// itself.
  void drop() noexcept;

  // While a step is noted, for the thread that does it.
  bool notes() const { return noting_.load() == std::this_thread::get_id(); }
  /// Of a noted issue; null for those before the step, which the whole graph waits for.
  const EventHandle* event_of(Stream stream, std::uint64_t number) const;
  /// The number of the issue that was just noted.
  std::uint64_t mark(Stream stream);
  /// Whatever is noted from now on waits for that issue.
  void hold_all(Stream stream, std::uint64_t number);
  /// Pinned memory that belongs to one copy of the graph.
  Staging& staging(std::size_t bytes);

 private:
  void order(Stream before, const EventHandle& event, Stream after);
  void gather_streams();
  void forget_notes() noexcept;

  CudaDevice& device_;
  std::atomic<std::thread::id> noting_{};
  std::array<std::vector<EventHandle>, kStreams> events_;  // by issue of the noted step
  std::vector<EventHandle> edges_;                         // forks and joins
  std::vector<std::unique_ptr<Staging>> stagings_;
  Owned<cudaGraphExec_t, cudaGraphExecDestroy> graph_;
};

}  // namespace shardplan::cuda
