#include "runtime/cuda/step_graph.h"

#include "plans/error.h"

namespace shardplan::cuda {

/// What `after` is given from now on waits for all that `before` has been given.
void CudaDevice::StepGraph::order(Stream before, const EventHandle& event, Stream after) {
  check(cudaEventRecord(event.get(), device_.stream(before)), "record an event");
  check(cudaStreamWaitEvent(device_.stream(after), event.get(), 0), "wait for an event");
}

/// The compute stream goes on when everything before has ended.
void CudaDevice::StepGraph::gather_streams() {
  device_.for_other_streams(
      [&](Stream stream) { order(stream, device_.queue(stream).idle, Stream::Compute); });
}

void CudaDevice::StepGraph::begin() {
  gather_streams();
  noting_ = std::this_thread::get_id();
  // Relaxed: NCCL and cuBLASLt may allocate, and other threads ask for events of earlier steps.
  check(cudaStreamBeginCapture(device_.stream(Stream::Compute), cudaStreamCaptureModeRelaxed),
        "begin a graph");
  device_.for_other_streams(
      [&](Stream stream) { order(Stream::Compute, edges_.emplace_back(make_event()), stream); });
}

void CudaDevice::StepGraph::end() {
  device_.for_other_streams(
      [&](Stream stream) { order(stream, edges_.emplace_back(make_event()), Stream::Compute); });
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(device_.stream(Stream::Compute), &captured), "end a graph");
  forget_notes();
  const Owned<cudaGraph_t, cudaGraphDestroy> graph(captured);
  cudaGraphExec_t made = nullptr;
  check(cudaGraphInstantiate(&made, graph.get(), 0), "make a graph");
  graph_ = Owned<cudaGraphExec_t, cudaGraphExecDestroy>(made);
}

void CudaDevice::StepGraph::forget_notes() noexcept {
  noting_ = std::thread::id();
  edges_.clear();
  for (auto& events : events_)
    events.clear();
}

std::array<std::uint64_t, kStreams> CudaDevice::StepGraph::run() {
  std::array<std::uint64_t, kStreams> ends{};
  if (!device_.may_issue(Stream::Compute)) return ends;
  gather_streams();
  check(cudaGraphLaunch(graph_.get(), device_.stream(Stream::Compute)), "run a graph");
  const auto mark_end = [&](Stream stream) {
    ends[static_cast<int>(stream)] = device_.mark(stream, kGraphId);
  };
  mark_end(Stream::Compute);
  const EventHandle* done =
      device_.event_of(Stream::Compute, ends[static_cast<int>(Stream::Compute)]);
  bool all = true;
  device_.for_other_streams([&](Stream stream) {
    all = all && device_.may_issue(stream);
    if (!all) return;
    check(cudaStreamWaitEvent(device_.stream(stream), done->get(), 0), "wait for an event");
    mark_end(stream);
  });
  return all ? ends : std::array<std::uint64_t, kStreams>{};
}

void CudaDevice::StepGraph::drop() noexcept {
  if (noting_.load() != std::thread::id()) {  // something has failed on the way
    cudaGraph_t captured = nullptr;
    cudaStreamEndCapture(device_.queues_[static_cast<int>(Stream::Compute)]->stream.get(),
                         &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    forget_notes();
  }
  graph_ = {};
}

const EventHandle* CudaDevice::StepGraph::event_of(Stream stream, std::uint64_t number) const {
  const std::uint64_t before = device_.queue(stream).issued;
  return number <= before ? nullptr : &events_[static_cast<int>(stream)][number - before - 1];
}

std::uint64_t CudaDevice::StepGraph::mark(Stream stream) {
  auto& events = events_[static_cast<int>(stream)];
  check(cudaEventRecord(events.emplace_back(make_event()).get(), device_.stream(stream)),
        "record an event");
  return device_.queue(stream).issued + events.size();
}

void CudaDevice::StepGraph::hold_all(Stream stream, std::uint64_t number) {
  const EventHandle* event = event_of(stream, number);
  if (event == nullptr) return;
  const auto hold = [&](Stream other) {
    if (other != stream)
      check(cudaStreamWaitEvent(device_.stream(other), event->get(), 0), "wait for an event");
  };
  hold(Stream::Compute);
  device_.for_other_streams(hold);
}

CudaDevice::Staging& CudaDevice::StepGraph::staging(std::size_t bytes) {
  Staging& slot = *stagings_.emplace_back(std::make_unique<Staging>());
  slot.memory = PinnedMemory(bytes);
  slot.bytes = bytes;
  return slot;
}

}  // namespace shardplan::cuda
