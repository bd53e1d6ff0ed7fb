#include "runtime/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/cuda/kernels.h"
#include "plans/error.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/step_graph.h"

namespace shardplan::cuda {
namespace {

/// cuBLASLt's algorithms for Hopper want 32 MiB (NVIDIA's recommendation for cublasSetWorkspace,
/// and what PyTorch gives it).
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
/// Operands pass through pinned memory in parts of this size.
constexpr std::size_t kPartBytes = std::size_t{64} << 20;

}  // namespace

int device_count() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "find a device");
  return count;
}

/// How a thread waits: awake at first, then with naps; and only so long without progress.
class CudaDevice::Patience {
 public:
  explicit Patience(CudaDevice& device) : device_(device) {}

  /// To be called after every look that found no end. Throws what checks have found, SystemError
  /// when nothing of the device has finished within the time-out.
  void pause() {
    const Time now = Clock::now();
    if (now >= next_check_) {
      check_all(now);
      next_check_ = now + kBetweenChecks;
    }
    if (now < naps_from_)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  static constexpr std::chrono::milliseconds kBetweenChecks{1};
  static constexpr std::chrono::milliseconds kAwake{2};
  static constexpr std::chrono::microseconds kNap{20};

  void check_all(Time now) {
    device_.expect_no_failure();
    if (const std::uint64_t progress = device_.progress(); progress != progress_) {
      progress_ = progress;
      since_ = now;
    }
    if (std::chrono::duration<double>(now - since_).count() > device_.options_.timeout_s)
      throw SystemError(fmt::format("nothing of the device has finished for {} s: {}",
                                    device_.options_.timeout_s, device_.oldest_issues()));
  }

  CudaDevice& device_;
  std::uint64_t progress_ = 0;
  Time since_ = Clock::now();
  Time next_check_ = since_ + kBetweenChecks;
  const Time naps_from_ = since_ + kAwake;
};

CudaDevice::CudaDevice(const DeviceOptions& options, Body body)
    : options_(options), body_(std::move(body)), graph_(std::make_unique<StepGraph>(*this)) {
  check(cudaSetDevice(options.index), "use the device");
  for (int s = 0; s < kStreams; ++s) {
    const bool computes = static_cast<Stream>(s) == Stream::Compute;
    if (!options.streams[s] && !computes) continue;
    auto made = std::make_unique<Queue>();
    made->stream = make_stream();
    std::ranges::generate(made->events, make_event);
    made->idle = make_event();
    const auto partials = new_memory(kPartials * sizeof(double));
    made->partials = {reinterpret_cast<double*>(partials.data()), kPartials};
    const auto now = new_memory(sizeof(StepFactors));
    made->now = {reinterpret_cast<StepFactors*>(now.data()), 1};
    if (computes) made->products = std::make_unique<Products>(new_memory(kWorkspaceBytes));
    queues_[s] = std::move(made);
  }
}

CudaDevice::~CudaDevice() {
  join();
  cudaSetDevice(options_.index);
}

std::span<std::byte> CudaDevice::new_memory(std::size_t bytes) {
  return memory_.emplace_back(bytes).bytes();
}

std::span<std::byte> CudaDevice::allocate(Space space, Bytes bytes) {
  check(cudaSetDevice(options_.index), "use the device");
  const auto size = static_cast<std::size_t>(bytes);
  if (space == Space::Device) {
    const std::span<std::byte> memory = new_memory(size);
    if (arena_.empty()) arena_ = memory;
    return memory;
  }
  shardplan::check(space == Space::Pinned, "devices have memory of their own and pinned memory");
  return pinned_.emplace_back(size).bytes();
}

CudaDevice::Queue& CudaDevice::queue(Stream stream) {
  check(cudaSetDevice(options_.index), "use the device");  // it is one of the calling thread
  const auto& queue = queues_[static_cast<int>(stream)];
  shardplan::check(queue != nullptr, "the device has the streams of its plan");
  return *queue;
}

std::uint64_t CudaDevice::enqueue(Stream stream, const Issue& issue) {
  Queue& own = queue(stream);
  if (!may_issue(stream)) return 0;
  for (int s = 0; s < kStreams; ++s) {
    if (issue.waits[s] == 0 || s == static_cast<int>(stream)) continue;
    if (const EventHandle* event = event_of(static_cast<Stream>(s), issue.waits[s]))
      check(cudaStreamWaitEvent(own.stream.get(), event->get(), 0), "wait for an event");
  }
  if (!body_(issue)) return 0;
  return mark(stream, issue.id);
}

/// Blocks until the stream has room for one more issue; false: the device was stopped.
bool CudaDevice::may_issue(Stream stream) {
  const std::uint64_t number = queue(stream).issued + 1;
  if (number > kCapacity && !wait(stream, number - kCapacity)) return false;
  expect_no_failure();
  return !stopped_;
}

/// What ends with an issue; null when that is known to have ended.
const EventHandle* CudaDevice::event_of(Stream stream, std::uint64_t number) {
  if (graph_->notes()) return graph_->event_of(stream, number);
  const Queue& own = queue(stream);
  // The event of an older issue is another one's by now, and the host has waited for it.
  return own.issued - number >= kCapacity ? nullptr : &own.events[number % kCapacity];
}

/// Ends an issue, of what the stream was given since the last one.
std::uint64_t CudaDevice::mark(Stream stream, InstructionId id) {
  if (graph_->notes()) return graph_->mark(stream);
  Queue& own = queue(stream);
  const std::uint64_t number = own.issued + 1;
  own.ids[number % kCapacity] = id;
  check(cudaEventRecord(own.events[number % kCapacity].get(), own.stream.get()), "record an event");
  own.issued = number;
  return number;
}

void CudaDevice::begin_step(const StepScalars& scalars) {
  const StepFactors now(scalars.learning_rate, scalars.bias_correction1, scalars.bias_correction2);
  for (const auto& queue : queues_)
    if (queue) cuda::fill(queue->now, now, queue->stream.get());
}

Replay* CudaDevice::replay() { return graph_.get(); }

void CudaDevice::drop_graph() noexcept { graph_->drop(); }

bool CudaDevice::is_finished(const Queue& queue, std::uint64_t count) const {
  if (count == 0 || queue.issued - count >= kCapacity) return true;
  const cudaError_t status = cudaEventQuery(queue.events[count % kCapacity].get());
  if (status == cudaErrorNotReady) return false;
  check(status, "finish what was issued");
  return true;
}

bool CudaDevice::wait(Stream stream, std::uint64_t count) {
  if (count == 0) return true;
  if (graph_->notes()) {
    graph_->hold_all(stream, count);
    return true;
  }
  const Queue& own = queue(stream);
  Patience patience(*this);
  while (!is_finished(own, count)) {
    if (stopped_) return false;
    patience.pause();
  }
  expect_no_failure();
  return true;
}

/// A number that grows as issues finish.
std::uint64_t CudaDevice::progress() {
  std::uint64_t sum = 0;
  for (const auto& queue : queues_) {
    if (!queue) continue;
    std::uint64_t finished = queue->finished;
    while (finished < queue->issued && is_finished(*queue, finished + 1))
      ++finished;
    queue->finished = finished;
    sum += finished;
  }
  return sum;
}

std::string CudaDevice::oldest_issues() {
  std::string text;
  for (int s = 0; s < kStreams; ++s) {
    const auto& queue = queues_[s];
    if (!queue || queue->finished == queue->issued) continue;
    text += fmt::format("{}stream {} is at '{}'", text.empty() ? "" : ", ",
                        to_string(static_cast<Stream>(s)),
                        name_of(queue->ids[(queue->finished + 1) % kCapacity]));
  }
  return text;
}

std::string CudaDevice::name_of(InstructionId id) const {
  return id == kGraphId ? "a step's graph" : options_.name_of(id);
}

void CudaDevice::wait_for(const EventHandle& event) {
  Patience patience(*this);
  while (true) {
    const cudaError_t status = cudaEventQuery(event.get());
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, "finish what was issued");
    if (stopped_ && !ended_) throw SystemError("the device was stopped");
    patience.pause();
  }
}

void CudaDevice::expect_no_failure() {
  if (owner_.load() == std::this_thread::get_id())
    for (const auto& check : checks_)
      check();
  if (!failed_) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

void CudaDevice::defer(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_ = true;
}

// After a failure communicators have been aborted, so whatever was issued ends.
void CudaDevice::join() noexcept {
  stop();
  graph_->drop();
  for (const auto& queue : queues_)
    while (queue && queue->issued > 0 &&
           cudaEventQuery(queue->events[queue->issued % kCapacity].get()) == cudaErrorNotReady)
      std::this_thread::yield();
  ended_ = true;
}

void CudaDevice::compute(Stream stream, const Launch& launch) {
  Queue& own = queue(stream);
  // Products on other streams than compute's are not planned: they would need a workspace each.
  cuda::launch({own.stream.get(), *queue(Stream::Compute).products, own.partials, own.now}, launch);
}

void CudaDevice::copy(Stream stream, const Operand& from, const Operand& to) {
  shardplan::check(from.elems == to.elems, "a copy keeps the number of elements");
  if (from.elems == 0) return;
  if (from.dtype == to.dtype)
    check(cudaMemcpyAsync(to.data, from.data, to.bytes().size(), cudaMemcpyDeviceToDevice,
                          queue(stream).stream.get()),
          "copy");
  else
    convert(const_floats(from), floats(to), queue(stream).stream.get());
}

void CudaDevice::fill(Stream stream, const Operand& to, double value) {
  const cudaStream_t own = queue(stream).stream.get();
  switch (to.dtype) {
    case Dtype::Float64: return cuda::fill(elements<double>(to), value, own);
    case Dtype::Float32: return cuda::fill(elements<float>(to), static_cast<float>(value), own);
    case Dtype::BFloat16:
      return cuda::fill(elements<BFloat16>(to), rounded(static_cast<float>(value)), own);
    case Dtype::Int64:
      return cuda::fill(elements<std::int64_t>(to), static_cast<std::int64_t>(value), own);
    case Dtype::Int32:
      return cuda::fill(elements<std::int32_t>(to), static_cast<std::int32_t>(value), own);
    default: break;
  }
  shardplan::check(false, "a fill is of a dtype that kernels have");
}

/// Room in pinned memory, once what last passed through it is done.
CudaDevice::Staging& CudaDevice::staging(Queue& queue, std::size_t bytes) {
  Staging& slot = queue.stagings[queue.next_staging++ % kStagings];
  if (slot.used) wait_for(slot.done);
  if (!slot.used) slot.done = make_event();
  if (slot.memory.bytes().size() < bytes) slot.memory = PinnedMemory(bytes);
  slot.used = true;
  slot.bytes = bytes;
  return slot;
}

/// The same for a part of an issue's operand, whose copies a graph repeats.
CudaDevice::Staging& CudaDevice::staging(Queue& queue, std::size_t bytes, const Issue& issue,
                                         HostData& host, std::size_t at) {
  Staging& slot = graph_->notes() ? graph_->staging(bytes) : staging(queue, bytes);
  slot.device = this;
  slot.host = &host;
  slot.issue = issue;
  slot.at = static_cast<Bytes>(at);
  return slot;
}

/// The slot is free again after what the stream was given until now; a graph's never is.
void CudaDevice::release(const Queue& queue, const Staging& slot) {
  if (slot.used) check(cudaEventRecord(slot.done.get(), queue.stream.get()), "record an event");
}

void CudaDevice::copy_in(Stream stream, const Issue& issue, HostData& host, const Operand& to) {
  Queue& own = queue(stream);
  const std::span<std::byte> all = to.bytes();
  for (std::size_t at = 0; at < all.size(); at += kPartBytes) {
    const std::span<std::byte> part = all.subspan(at, std::min(kPartBytes, all.size() - at));
    Staging& slot = staging(own, part.size(), issue, host, at);
    if (graph_->notes())
      check(cudaLaunchHostFunc(own.stream.get(), &CudaDevice::provide, &slot), "call the host");
    else
      host.provide(issue, slot.at, slot.memory.bytes().first(part.size()));
    check(cudaMemcpyAsync(part.data(), slot.memory.bytes().data(), part.size(),
                          cudaMemcpyHostToDevice, own.stream.get()),
          "copy to the device");
    release(own, slot);
  }
}

void CudaDevice::copy_out(Stream stream, const Issue& issue, HostData& host, const Operand& from) {
  Queue& own = queue(stream);
  const std::span<std::byte> all = from.bytes();
  for (std::size_t at = 0; at < all.size(); at += kPartBytes) {
    const std::span<std::byte> part = all.subspan(at, std::min(kPartBytes, all.size() - at));
    Staging& slot = staging(own, part.size(), issue, host, at);
    check(cudaMemcpyAsync(slot.memory.bytes().data(), part.data(), part.size(),
                          cudaMemcpyDeviceToHost, own.stream.get()),
          "copy to the host");
    check(cudaLaunchHostFunc(own.stream.get(), &CudaDevice::accept, &slot), "call the host");
    release(own, slot);
  }
}

/// Runs on a thread of CUDA's, which no exception may leave. When a graph calls it again that is
/// for the next step.
template <typename Call>
void CudaDevice::call_host(void* staging, Call call) noexcept {
  Staging& slot = *static_cast<Staging*>(staging);
  try {
    call(*slot.host, slot.memory.bytes().first(slot.bytes), slot);
    ++slot.issue.step;
  } catch (...) {
    slot.device->defer(std::current_exception());
  }
}

void CudaDevice::provide(void* staging) noexcept {
  call_host(staging, [](HostData& host, std::span<std::byte> part, const Staging& slot) {
    host.provide(slot.issue, slot.at, part);
  });
}

void CudaDevice::accept(void* staging) noexcept {
  call_host(staging, [](HostData& host, std::span<const std::byte> part, const Staging& slot) {
    host.accept(slot.issue, slot.at, part);
  });
}

void CudaDevice::fill_pattern(Stream stream, std::span<std::byte> memory) {
  cuda::fill_pattern(memory, queue(stream).stream.get());
}

void CudaDevice::count_changed(Stream stream, std::span<const std::byte> memory, Bytes& changed) {
  const Queue& own = queue(stream);
  cuda::count_changed(memory, {&changed, 1}, own.partials, own.stream.get());
}

std::optional<Bytes> CudaDevice::bytes_in_use() const {
  check(cudaSetDevice(options_.index), "use the device");
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "tell how much memory is free");
  return static_cast<Bytes>(total - free);
}

void CudaDevice::finish(Stream stream) {
  Queue& own = queue(stream);
  check(cudaEventRecord(own.idle.get(), own.stream.get()), "record an event");
  wait_for(own.idle);
}

std::span<const std::byte> CudaDevice::on_host(const Operand& from) {
  Queue& own = queue(Stream::Compute);
  const std::span<const std::byte> all = from.bytes();
  std::vector<std::byte>& copy = copies_[from.data];
  copy.resize(all.size());
  for (std::size_t at = 0; at < all.size(); at += kPartBytes) {
    const std::size_t bytes = std::min(kPartBytes, all.size() - at);
    Staging& slot = staging(own, bytes);
    check(cudaMemcpyAsync(slot.memory.bytes().data(), all.data() + at, bytes,
                          cudaMemcpyDeviceToHost, own.stream.get()),
          "copy to the host");
    check(cudaEventRecord(slot.done.get(), own.stream.get()), "record an event");
    wait_for(slot.done);
    std::memcpy(copy.data() + at, slot.memory.bytes().data(), bytes);
  }
  return copy;
}

void CudaDevice::from_host(std::span<const std::byte> from, const Operand& to) {
  Queue& own = queue(Stream::Compute);
  for (std::size_t at = 0; at < from.size(); at += kPartBytes) {
    const std::size_t bytes = std::min(kPartBytes, from.size() - at);
    Staging& slot = staging(own, bytes);
    std::memcpy(slot.memory.bytes().data(), from.data() + at, bytes);
    check(cudaMemcpyAsync(to.data + at, slot.memory.bytes().data(), bytes, cudaMemcpyHostToDevice,
                          own.stream.get()),
          "copy to the device");
    check(cudaEventRecord(slot.done.get(), own.stream.get()), "record an event");
    wait_for(slot.done);
  }
}

}  // namespace shardplan::cuda
